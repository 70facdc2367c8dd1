#!/usr/bin/env python3
"""Exports the attention layers of a trained model, and what eager Python computes with them.

DIR gets rlor.pt (the checkpoint itself), rlor.safetensors (the whole of it), rlor.ts (its attention
layers, scripted, under the checkpoint's names) and a golden file for each layer, length and mask;
--check ATTN then runs `ATTN check DIR`. The checkpoint is $ATTN_SHARED/weights/rlor_tsp.pt: a
routing model trained with the documents' ProjectedMultiheadAttention in its encoder and
PreprojectedMultiheadAttention in its decoder. Where it is absent the exit code is 77.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

from test_reference import documents, equal_bits  # first: it prepares for torch and finds scripts/

import safetensors.torch
import torch
from torch import nn

import export_golden
import golden_case
import golden_file
import reference

SKIPPED = 77
BATCH, WIDTH = 2, 128
LENGTHS = (20, 33)
WEIGHTS = ["rlor.ts", "rlor.safetensors", "rlor.pt"]
OPTIONS = {"embedding_dim": WIDTH, "n_heads": 8}
LAYERS = {
    f"layer{i}": ("ProjectedMultiheadAttention", f"backbone.encoder.layers.{i}.0.module.")
    for i in range(3)
}
LAYERS["glimpse"] = ("PreprojectedMultiheadAttention", "backbone.decoder.glimpse.")


def sizes(module, n):
    """(inputs, name -> mask shape) of a layer over n nodes; the glimpse has a single query."""
    nodes = [BATCH, n, WIDTH]
    if module == "PreprojectedMultiheadAttention":
        inputs = {"query": [BATCH, 1, WIDTH], "key": nodes, "value": nodes}
        return inputs, {"open": None, "masked": [BATCH, 1, n]}
    masks = {"open": None, "masked_keys": [BATCH, n], "masked_pairs": [BATCH, n, n]}
    return {"q": nodes}, masks


def cases():
    """One case for each layer, length and mask."""
    for layer, (module, prefix) in LAYERS.items():
        for n in LENGTHS:
            inputs, masks = sizes(module, n)
            for kind, shape in masks.items():
                case = {"name": f"{layer}_{kind}_{n}", "module": module, "options": OPTIONS}
                case |= {"dtype": "float32", "inputs": inputs, "seed": n}
                if shape:
                    case["mask"] = {"kind": "random", "shape": shape}
                yield case | {"weights": WEIGHTS, "prefix": prefix}


def tree(library):
    """One module that holds the layers of a library at the checkpoint's places."""
    root = nn.Module()
    for module, prefix in LAYERS.values():
        *parents, last = prefix.rstrip(".").split(".")
        place = root
        for name in parents:
            if name not in dict(place.named_children()):
                place.add_module(name, nn.Module())
            place = place.get_submodule(name)
        place.add_module(last, golden_case.make({"module": module, "options": OPTIONS}, library))
    return root.eval()


def trained(checkpoint, library):
    """The tree with the checkpoint's weights; refuses any name that either of the two lacks."""
    prefixes = tuple(prefix for _, prefix in LAYERS.values())
    root = tree(library)
    root.load_state_dict({name: x for name, x in checkpoint.items() if name.startswith(prefixes)})
    return root


def assert_documents_agree(case, tensors, library):
    """The documents' own classes give the same bits: output and gradients."""
    ours = golden_case.evaluate(case, golden_case.make(case), tensors)
    theirs = golden_case.evaluate(case, golden_case.make(case, library), tensors)
    assert list(ours) == list(theirs), case["name"]
    for name in ours:
        assert equal_bits(ours[name], theirs[name]), f"{case['name']}: {name}"


def export(checkpoint, library, folder):
    """Writes the weights in two more formats and the golden files."""
    root = trained(checkpoint, reference)
    trained(checkpoint, library)
    torch.jit.script(root).save(str(folder / "rlor.ts"))
    safetensors.torch.save_file(checkpoint, folder / "rlor.safetensors")
    declared = list(cases())
    progress = export_golden.Progress(len(declared))
    for case in declared:
        layer = root.get_submodule(case["prefix"].rstrip("."))
        given = {f"param.{name}": x for name, x in layer.state_dict().items()}
        tensors = golden_case.values(case, layer, given)
        assert_documents_agree(case, tensors, library)
        results, metadata = golden_file.golden(case, given, export_golden.LARGEST_LIVE)
        path = folder / f"{case['name']}.golden.safetensors"
        progress.wrote(golden_file.write(path, results, metadata))
    progress.finish(folder)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--check", metavar="ATTN", help="the attn command, to check DIR with")
    options = parser.parse_args()

    shared = os.environ.get("ATTN_SHARED")
    path = Path(shared or "", "weights", "rlor_tsp.pt")
    if not shared or not path.is_file():
        print("skipped:", f"there is no {path}" if shared else "ATTN_SHARED is not set")
        return SKIPPED
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    for former in options.folder.glob("*.golden.safetensors"):
        former.unlink()
    shutil.copyfile(path, options.folder / "rlor.pt")
    library = documents()
    try:
        export(checkpoint, library, options.folder)
    finally:
        shutil.rmtree(library.folder)
    if not options.check:
        return 0
    return subprocess.run([options.check, "check", options.folder], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
