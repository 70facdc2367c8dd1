#!/usr/bin/env python3
"""Exports the attention layers of trained models, and what eager Python computes with them.

DIR gets the checkpoints themselves, of the first also rlor.safetensors (all of it) and rlor.ts (its
attention layers, scripted, under the checkpoint's names), and a golden file for each layer, length
and mask; --check ATTN then runs `ATTN check DIR` and looks at what `ATTN inspect` says of them. The
checkpoints are those of $ATTN_SHARED/weights:

- rlor_tsp.pt, a routing model trained with the documents' ProjectedMultiheadAttention in its
  encoder and PreprojectedMultiheadAttention in its decoder;
- attention_learn_to_route_tsp20.pt, its ancestor, whose layers have a matrix for each head.

Where they are absent the exit code is 77.
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
OPTIONS = {"embedding_dim": WIDTH, "n_heads": 8}
RLOR = {
    f"layer{i}": ("ProjectedMultiheadAttention", f"backbone.encoder.layers.{i}.0.module.")
    for i in range(3)
}
RLOR["glimpse"] = ("PreprojectedMultiheadAttention", "backbone.decoder.glimpse.")
ROUTE = {
    f"route{i}": ("ProjectedMultiheadAttention", f"model.embedder.layers.{i}.0.module.")
    for i in range(3)
}
LAYOUT = "attention-learn-to-route"

#: Lines that `attn inspect` must print of each checkpoint, after one that begins with its format and size.
INSPECTED = {
    "rlor.pt": ["rlor.pt: state_dict, 2.9 MB; "]
    + [f"{prefix} fits {module}(128, n_heads ?)" for module, prefix in RLOR.values()]
    + ["    attn::ProjectedMultiheadAttention layer(128);  // n_heads ?: not in the file"],
    "route.pt": ["route.pt: legacy state_dict, 2.8 MB; "]
    + [f"{prefix} fits {module}(128, n_heads 8), layout {LAYOUT}" for module, prefix in ROUTE.values()]
    + ["[8, 128, 16]", f'.layout("{LAYOUT}")'],
}


def sizes(module, n):
    """(inputs, name -> mask shape) of a layer over n nodes; the glimpse has a single query."""
    nodes = [BATCH, n, WIDTH]
    if module == "PreprojectedMultiheadAttention":
        inputs = {"query": [BATCH, 1, WIDTH], "key": nodes, "value": nodes}
        return inputs, {"open": None, "masked": [BATCH, 1, n]}
    masks = {"open": None, "masked_keys": [BATCH, n], "masked_pairs": [BATCH, n, n]}
    return {"q": nodes}, masks


def cases(layers, more):
    """One case for each layer, length and mask."""
    for layer, (module, prefix) in layers.items():
        for n in LENGTHS:
            inputs, masks = sizes(module, n)
            for kind, shape in masks.items():
                case = {"name": f"{layer}_{kind}_{n}", "module": module, "options": OPTIONS}
                case |= {"dtype": "float32", "inputs": inputs, "seed": n, "prefix": prefix}
                if shape:
                    case["mask"] = {"kind": "random", "shape": shape}
                yield case | more


def tree(library):
    """One module that holds the layers of a library at the checkpoint's places."""
    root = nn.Module()
    for module, prefix in RLOR.values():
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
    prefixes = tuple(prefix for _, prefix in RLOR.values())
    root = tree(library)
    root.load_state_dict({name: x for name, x in checkpoint.items() if name.startswith(prefixes)})
    return root


def projected(checkpoint, prefix):
    """A layer whose heads have matrices of their own, as ProjectedMultiheadAttention names and shapes them."""
    heads = {name: checkpoint[f"{prefix}W_{name}"] for name in ("query", "key", "val", "out")}
    matrix = (WIDTH, WIDTH)
    state = {
        f"{encoder}.weight": heads[name].permute(0, 2, 1).reshape(matrix)
        for encoder, name in (("queryEncoder", "query"), ("keyEncoder", "key"), ("valueEncoder", "val"))
    }
    return state | {"MHA.project_out.weight": heads["out"].reshape(matrix).T}


def assert_documents_agree(case, tensors, library):
    """The documents' own classes give the same bits: output and gradients."""
    ours = golden_case.evaluate(case, golden_case.make(case), tensors)
    theirs = golden_case.evaluate(case, golden_case.make(case, library), tensors)
    assert list(ours) == list(theirs), case["name"]
    for name in ours:
        assert equal_bits(ours[name], theirs[name]), f"{case['name']}: {name}"


def write_goldens(declared, layer_of, library, folder):
    """A golden file for each case; `layer_of` gives the module of a prefix."""
    progress = export_golden.Progress(len(declared))
    for case in declared:
        layer = layer_of(case["prefix"])
        given = {f"param.{name}": x for name, x in layer.state_dict().items()}
        tensors = golden_case.values(case, layer, given)
        assert_documents_agree(case, tensors, library)
        results, metadata = golden_file.golden(case, given, export_golden.LARGEST_LIVE)
        path = folder / f"{case['name']}.golden.safetensors"
        progress.wrote(golden_file.write(path, results, metadata))
    progress.finish(folder)


def export_rlor(path, library, folder):
    """The checkpoint itself, in two more formats, and its golden files."""
    shutil.copyfile(path, folder / "rlor.pt")
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    root = trained(checkpoint, reference)
    trained(checkpoint, library)
    torch.jit.script(root).save(str(folder / "rlor.ts"))
    safetensors.torch.save_file(checkpoint, folder / "rlor.safetensors")
    declared = list(cases(RLOR, {"weights": ["rlor.ts", "rlor.safetensors", "rlor.pt"]}))
    write_goldens(declared, lambda prefix: root.get_submodule(prefix.rstrip(".")), library, folder)


def export_route(path, library, folder):
    """The checkpoint itself and its golden files, as the documents' class computes them."""
    shutil.copyfile(path, folder / "route.pt")
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)["model"]

    def layer_of(prefix):
        layer = reference.ProjectedMultiheadAttention(WIDTH, OPTIONS["n_heads"])
        layer.load_state_dict(projected(checkpoint, prefix.removeprefix("model.")))
        return layer.eval()

    declared = list(cases(ROUTE, {"weights": ["route.pt"], "weights_layout": LAYOUT}))
    write_goldens(declared, layer_of, library, folder)


def inspect_reads_well(attn, folder):
    """Whether `attn inspect` prints the lines of INSPECTED; says which are missing."""
    good = True
    for file, lines in INSPECTED.items():
        printed = subprocess.run(
            [attn, "inspect", file], cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        for line in lines:
            if line not in printed:
                print(f"attn inspect {file} lacks: {line}")
                good = False
    return good


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--check", metavar="ATTN", help="the attn command, to check DIR with")
    options = parser.parse_args()

    shared = os.environ.get("ATTN_SHARED")
    weights = Path(shared or "", "weights")
    exports = {
        weights / "rlor_tsp.pt": export_rlor,
        weights / "attention_learn_to_route_tsp20.pt": export_route,
    }
    for path in exports:
        if not shared or not path.is_file():
            print("skipped:", f"there is no {path}" if shared else "ATTN_SHARED is not set")
            return SKIPPED
    options.folder.mkdir(parents=True, exist_ok=True)
    for former in options.folder.glob("*.golden.safetensors"):
        former.unlink()
    library = documents()
    try:
        for path, export in exports.items():
            export(path, library, options.folder)
    finally:
        shutil.rmtree(library.folder)
    if not options.check:
        return 0
    code = subprocess.run([options.check, "check", options.folder], check=False).returncode
    return code if inspect_reads_well(options.check, options.folder) else code or 1


if __name__ == "__main__":
    sys.exit(main())
