#!/usr/bin/env python3
"""Writes what eager Python computes, for the C++ library to be held against.

Without options: tests/golden/data, one file for each case of tests/golden/cases.json.
--live DIR: random cases of every module with random weights, to be met bit for bit on this machine.
--init DIR: initial parameters under given seeds, and the random numbers that follow them.
--quickstart DIR: each module at a real size: its weights in four formats, results and time.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

# Before torch is loaded: threads that spin while they wait make two-thread cases 20 times slower
# on a machine that has other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import safetensors.torch
import torch

import golden_case
import golden_file
import random_cases

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
LARGEST_LIVE = 200_000

INIT_SIZES = {
    "XavierMultiheadAttention": (
        ("in_dim", "qk_dim", "v_dim", "out_dim", "n_heads", "attn_dropout"),
        [(1, 1, 1, 1, 1, 0), (2, 2, 4, 3, 2, 0.1), (3, 4, 2, 5, 1, 0), (6, 8, 4, 7, 2, 0)]
        + [(5, 3, 3, 3, 3, 0), (16, 16, 16, 16, 4, 0.5), (33, 20, 10, 17, 5, 0)]
        + [(64, 128, 96, 80, 8, 0), (256, 256, 256, 256, 8, 0.1)],
    ),
    "EinsumMultiheadAttention": (
        ("embed_size", "num_heads"),
        [(1, 1), (2, 2), (3, 1), (8, 2), (16, 1), (15, 5), (34, 2), (128, 8), (256, 4)],
    ),
    "PreprojectedMultiheadAttention": (
        ("embedding_dim", "n_heads"),
        [(1, 1), (2, 1), (3, 3), (4, 2), (8, 8), (17, 1), (34, 2), (128, 8), (256, 8)],
    ),
    "CausalMultiheadAttention": (
        ("hidden_size", "num_heads"),
        [(1, 1), (2, 1), (3, 3), (4, 2), (6, 3), (8, 2), (17, 1), (34, 2), (128, 8), (256, 8)],
    ),
}
INIT_SIZES["ProjectedMultiheadAttention"] = INIT_SIZES["PreprojectedMultiheadAttention"]

QUICKSTART = {
    "xavier": {
        "module": "XavierMultiheadAttention",
        "options": {
            "in_dim": 512,
            "qk_dim": 512,
            "v_dim": 512,
            "out_dim": 512,
            "n_heads": 8,
            "attn_dropout": 0.1,
        },
        "inputs": {"queries": [4, 96, 512]},
        "alias": {"keys": "queries", "values": "queries"},
        "mask": {"kind": "random", "shape": [4, 1, 96]},
    },
    "einsum": {
        "module": "EinsumMultiheadAttention",
        "options": {"embed_size": 512, "num_heads": 8},
        "inputs": {"values": [4, 80, 512], "keys": [4, 80, 512], "query": [4, 64, 512]},
        "mask": {"kind": "random", "shape": [4, 1, 1, 80], "dtype": "int64"},
    },
    "attention_score": {
        "module": "AttentionScore",
        "options": {"use_tanh": True, "C": 10},
        "inputs": {"query": [4, 64, 256], "key": [4, 128, 256]},
        "mask": {"kind": "random", "shape": [4, 1, 128]},
    },
    "preprojected": {
        "module": "PreprojectedMultiheadAttention",
        "options": {"embedding_dim": 256, "n_heads": 8},
        "inputs": {"query": [4, 64, 256], "key": [4, 100, 256], "value": [4, 100, 256]},
        "mask": {"kind": "random", "shape": [4, 1, 100]},
    },
    "projected": {
        "module": "ProjectedMultiheadAttention",
        "options": {"embedding_dim": 256, "n_heads": 8},
        "inputs": {"q": [4, 100, 256]},
        "mask": {"kind": "random", "shape": [4, 100]},
    },
    "causal": {
        "module": "CausalMultiheadAttention",
        "options": {"hidden_size": 512, "num_heads": 8},
        "inputs": {"x": [4, 96, 512]},
    },
}


class Progress:
    """A line that counts up on a terminal, and one line at the end anywhere."""

    def __init__(self, total):
        self.total, self.done, self.bytes, self.start = total, 0, 0, time.monotonic()

    def wrote(self, path):
        self.done += 1
        self.bytes += path.stat().st_size
        if sys.stdout.isatty():
            print(f"\r\033[K[{self.done}/{self.total}] {path.name}", end="", flush=True)

    def finish(self, folder):
        lead = "\r\033[K" if sys.stdout.isatty() else ""
        seconds = time.monotonic() - self.start
        print(f"{lead}{self.done} files, {self.bytes / 1e6:.2f} MB, {seconds:.1f} s: {folder}")


def export_goldens(cases, folder, only=()):
    """One file a case; without `only`, files that no case names are removed."""
    names = [case["name"] for case in cases]
    unknown = sorted(set(only) - set(names))
    if unknown or len(set(names)) < len(names):
        sys.exit(f"cases that are unknown or named twice: {unknown or sorted(names)}")
    chosen = [case for case in cases if not only or case["name"] in only]
    progress = Progress(len(chosen))
    for case in chosen:
        tensors, metadata = golden_file.golden(case)
        path = folder / f"{case['name']}.safetensors"
        progress.wrote(golden_file.write(path, tensors, metadata))
    for path in folder.glob("*.safetensors") if not only else ():
        if path.stem not in names:
            print(f"removed {path.name}, which has no case")
            path.unlink()
    progress.finish(folder)


def export_live(folder, count, seed):
    """A bundle for each kind of module: `count` random cases with inputs, parameters, results."""
    progress = Progress(len(random_cases.KINDS))
    for module in random_cases.KINDS:
        cases, bundle = [], {}
        for case, tensors in random_cases.stream(module, count, seed):
            results = golden_case.evaluate(case, golden_case.make(case), tensors)
            largest = max(tensor.numel() for tensor in results.values())
            assert largest <= LARGEST_LIVE, f"{case}: {largest} elements"
            cases.append(case)
            bundle |= {f"{case['name']}/{key}": x for key, x in (tensors | results).items()}
        path = folder / f"{module}.safetensors"
        version = golden_file.metadata({})["torch"]
        metadata = {"cases": golden_file.compact(cases), "torch": version}
        progress.wrote(golden_file.write(path, bundle, metadata))
    progress.finish(folder)


def export_init(folder):
    """Parameters right after manual_seed and construction, and the four random numbers after."""
    inits, bundle = [], {}
    for module, (names, sizes) in INIT_SIZES.items():
        for number, values in enumerate(sizes):
            init = {
                "name": f"{module}_{number}",
                "module": module,
                "options": dict(zip(names, values)),
                "seed": 1000 + number,
            }
            torch.manual_seed(init["seed"])
            made = golden_case.make(init)
            bundle[f"{init['name']}/next"] = torch.rand(4)
            bundle |= {f"{init['name']}/{key}": p for key, p in made.state_dict().items()}
            inits.append(init)
    progress = Progress(1)
    metadata = {"inits": golden_file.compact(inits)}
    progress.wrote(golden_file.write(folder / "init.safetensors", bundle, metadata))
    progress.finish(folder)


def trained(case):
    """The module with weights as after training: initial ones, and no bias left at zero."""
    torch.manual_seed(case["seed"])
    module = golden_case.make(case)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.add_(0.02 * torch.randn_like(parameter))
    return module.eval()


def forward_seconds(case, module, tensors, runs=15):
    """Best time of an eager forward without gradients, under the case's thread count."""
    torch.set_num_threads(case.get("threads", 1))
    arguments = golden_case.arguments_of(case, tensors, golden_case.DTYPES[case["dtype"]])
    best = float("inf")
    with torch.no_grad():
        for _ in range(runs):
            start = time.perf_counter()
            module(**arguments)
            best = min(best, time.perf_counter() - start)
    return best


def save_weights(module, folder, name):
    """TorchScript, safetensors, and a state_dict in the zip and in the legacy format; their names."""
    files = [f"{name}.ts", f"{name}.safetensors", f"{name}.pt", f"{name}.legacy.pt"]
    script, tensors, zipped, legacy = (folder / file for file in files)
    torch.jit.script(module).save(str(script))
    safetensors.torch.save_file(module.state_dict(), tensors)
    torch.save(module.state_dict(), zipped)
    torch.save(module.state_dict(), legacy, _use_new_zipfile_serialization=False)
    return files


def export_quickstart(folder):
    """NAME.golden.safetensors (inputs, results, time) and the weights, as `save_weights` does."""
    progress = Progress(len(QUICKSTART))
    for number, (name, case) in enumerate(QUICKSTART.items()):
        case = {"name": name, **case, "dtype": "float32", "seed": 1 + number, "gradients": False}
        module = trained(case)
        given = {f"param.{key}": p for key, p in module.state_dict().items()}
        inputs = {f"input.{key}": torch.randn(shape) for key, shape in case["inputs"].items()}
        if given:
            case["weights"] = save_weights(module, folder, name)
        tensors, metadata = golden_file.golden(case, given | inputs, LARGEST_LIVE)
        seconds = forward_seconds(case, module, given | inputs)
        metadata["seconds"] = json.dumps(seconds)
        path = folder / f"{name}.golden.safetensors"
        progress.wrote(golden_file.write(path, inputs | tensors, metadata))
    progress.finish(folder)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=Path, default=GOLDEN / "cases.json", metavar="FILE")
    parser.add_argument("--out", type=Path, default=GOLDEN / "data", metavar="DIR")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME")
    parser.add_argument("--live", type=Path, metavar="DIR")
    parser.add_argument("--count", type=int, default=200, help="live cases a module (200)")
    parser.add_argument("--seed", type=int, default=0, help="of the live cases (0)")
    parser.add_argument("--init", type=Path, metavar="DIR")
    parser.add_argument("--quickstart", type=Path, metavar="DIR")
    options = parser.parse_args()

    special = [folder for folder in (options.live, options.init, options.quickstart) if folder]
    for folder in special or [options.out]:
        folder.mkdir(parents=True, exist_ok=True)
    if options.live:
        export_live(options.live, options.count, options.seed)
    if options.init:
        export_init(options.init)
    if options.quickstart:
        export_quickstart(options.quickstart)
    if not special:
        cases = json.loads(options.cases.read_text())["cases"]
        export_goldens(cases, options.out, options.only)


if __name__ == "__main__":
    main()
