#!/usr/bin/env python3
"""Gives every file of $ATTN_SHARED/cases/files the verdict that its manifest.json expects."""

import json
import os
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weight_files import BAD_INPUT, READERS, WeightFiles, attn  # first: it prepares for torch

import safetensors.torch
import torch

SHARED = os.environ.get("ATTN_SHARED")
FILES = Path(SHARED or "/nonexistent") / "cases" / "files"

#: What the refusal of a file must say; all others load.
REFUSED = {
    "w09_os_system.pt": ["posix.system", "nothing of it was run"],
    "w09_global_eval.pt": ["__builtin__.eval", "nothing of it was run"],
    "w11_shape_larger_than_bytes.safetensors": ['"w"', "bytes"],
    "w11_begin_gt_end.safetensors": ['"w"', "begin"],
    "w11_past_eof.safetensors": ["expected 32 bytes, as the header says, got 16"],
    "w11_bytes_larger_than_shape.safetensors": ['"w"', "bytes"],
    "w11_unknown_dtype.safetensors": ['"w"', '"Q4"'],
    "w15_truncated_half.pt": ["zip archive", "the file is truncated"],
    "w15_truncated_tail.pt": ["zip archive", "the file is truncated"],
    "w15_empty.pt": ["empty file"],
    "w15_html.pt": ["an HTML or XML page"],
    "w15_lfs_pointer.pt": ["Git LFS pointer"],
    "w15_bitflip.pt": ['"W_QKV.weight"', "checksum", "damaged"],
}
#: Refused although Python loads it: nothing else notices the flipped bit.
STRICTER = {"w15_bitflip.pt"}
#: Refused by Python without a word about where to load it to.
NEEDS_A_DEVICE = {"w17_cuda_tag.pt"}
SUMS = {"a": -3.614025, "b": -1.797495, "at": 3.698696, "e": 2.384032}
SUMS |= {"q": 2.357274, "k": 2.993533, "v": -1.652111, "p": 5.063446}


def flattened(value, prefix=""):
    """The tensors of nested dicts under names joined by dots."""
    for name, inner in value.items():
        if isinstance(inner, torch.Tensor):
            yield prefix + name, inner
        elif isinstance(inner, dict):
            yield from flattened(inner, f"{prefix}{name}.")


def read_by_python(path):
    if path.suffix == ".ts":
        return torch.jit.load(path, map_location="cpu").state_dict()
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    return dict(flattened(torch.load(path, map_location="cpu", weights_only=True)))


@unittest.skipUnless(FILES.is_dir(), "the cases are not here: ATTN_SHARED names no folder with cases/files")
class TheManifest(WeightFiles):
    def setUp(self):
        super().setUp()
        self.entries = json.loads((FILES / "manifest.json").read_text())
        former = Path.cwd()
        os.chdir(self.folder)  # where the payloads of w09 would leave PWNED
        self.addCleanup(os.chdir, former)

    def test_names_every_file_and_its_verdict(self):
        files = [entry["file"] for entry in self.entries]
        self.assertEqual(sorted(files), sorted(x.name for x in FILES.iterdir() if x.suffix != ".json"))
        python_refuses = {x["file"] for x in self.entries if x["torch213_or_safetensors080"].startswith("REJECTS")}
        self.assertEqual(python_refuses - NEEDS_A_DEVICE, set(REFUSED) - STRICTER)

    def test_holds_for_every_file(self):
        """Two at a time: each is a process of its own, which must start LibTorch."""

        def run(file):
            return attn("convert", FILES / file, self.folder / f"{file}.converted.pt", "--quiet")

        files = [entry["file"] for entry in self.entries]
        with ThreadPoolExecutor(2) as pool:
            results = dict(zip(files, pool.map(run, files)))
        for file, result in results.items():
            target = self.folder / f"{file}.converted.pt"
            with self.subTest(file):
                if file in REFUSED:
                    self.assertEqual(result.returncode, BAD_INPUT, result)
                    self.assertEqual((result.stdout, result.stderr.count("\n")), ("", 1), result)
                    for word in [str(FILES / file), *REFUSED[file]]:
                        self.assertIn(word, result.stderr)
                    self.assertFalse(target.exists())
                else:
                    self.assertEqual((result.returncode, result.stderr), (0, ""))
                    in_order = not file.endswith(".safetensors")
                    self.assert_same(READERS[".pt"](target), read_by_python(FILES / file), in_order)
        self.assertEqual([x.name for x in self.folder.iterdir() if not x.name.endswith(".converted.pt")], [])
        self.assertFalse((FILES / "PWNED").exists())

    def test_knows_the_sums_of_views_and_the_number_behind_a_cuda_tag(self):
        """Six printed digits."""
        views = self.converted(FILES / "w08_views.pt", ".safetensors")
        self.assertEqual(set(views), set(SUMS))
        for name, wanted in SUMS.items():
            self.assertAlmostEqual(views[name].double().sum().item(), wanted, delta=5e-7, msg=name)
        tagged = self.converted(FILES / "w17_cuda_tag.pt", ".pt")
        total = sum(x.double().sum().item() for x in tagged.values())
        self.assertAlmostEqual(total, 2.512044, delta=5e-7)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
