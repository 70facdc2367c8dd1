"""What the tests of weight files share: the attn command and comparisons bit for bit."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads crawl

import numpy as np
import safetensors
import safetensors.torch
import torch

ATTN = os.environ.get("ATTN_COMMAND")
BAD_INPUT = 3


def attn(*arguments):
    """Runs the command that ATTN_COMMAND names."""
    return subprocess.run([ATTN, *map(str, arguments)], capture_output=True, text=True, check=False)


def bits(tensor):
    """Shape, dtype and bytes."""
    flat = tensor.detach().contiguous().flatten()
    return tuple(tensor.shape), tensor.dtype, flat.view(torch.uint8).numpy().tobytes()


def read_npz(path):
    with np.load(path, allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


READERS = {
    ".pt": lambda path: torch.load(path, weights_only=True),
    ".safetensors": safetensors.torch.load_file,
    ".npz": read_npz,
    ".npy": lambda path: {"": torch.from_numpy(np.load(path, allow_pickle=False))},
    ".ts": lambda path: torch.jit.load(path).state_dict(),
}


@unittest.skipUnless(ATTN, "the attn command is not here: ATTN_COMMAND names no program")
class WeightFiles(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def convert(self, source, suffix, *options):
        """The path of what `attn convert` makes of the file."""
        target = self.folder / f"converted{suffix}"
        result = attn("convert", source, target, "--quiet", *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return target

    def converted(self, source, suffix, *options):
        """The tensors that Python reads from what attn converts the file to."""
        return READERS[suffix](self.convert(source, suffix, *options))

    def refused(self, source, *words):
        """One line that names the file, with the words."""
        target = self.folder / "refused.pt"
        result = attn("convert", source, target, "--quiet")
        self.assertEqual(result.returncode, BAD_INPUT, result)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in (str(source), *words):
            self.assertIn(word, result.stderr)
        self.assertFalse(target.exists())
        return result.stderr

    def assert_same(self, got, wanted, in_order=True):
        """The same names, in their order, and the same bits."""
        self.assertEqual(list(got) if in_order else set(got), list(wanted) if in_order else set(wanted))
        for name, tensor in wanted.items():
            self.assertEqual(bits(got[name]), bits(tensor), name)
