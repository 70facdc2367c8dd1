#!/usr/bin/env python3
"""Holds the golden files to cases.json and to a fresh export, and the exporter to its word."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads crawl

import safetensors
import safetensors.torch
import torch

TESTS = Path(__file__).resolve().parent.parent
SCRIPTS = TESTS.parent / "scripts"
sys.path.insert(0, str(SCRIPTS))

import export_golden
import golden_case
import golden_file
import random_cases

GOLDEN = TESTS / "golden"
CASES = json.loads((GOLDEN / "cases.json").read_text())["cases"]
LARGEST_FOLDER = 6_000_000


def same(a, b):
    """Equal values, NaN equal to NaN."""
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


class TheFormula(unittest.TestCase):
    """Literal numbers that C++ pins as well."""

    def test_inputs(self):
        self.assertEqual(golden_case.fnv("input.q"), 0x81084D2D5960DADA)
        salt = golden_case.salt("input.q", 1)
        self.assertEqual(salt, 0x1F3FC6E6D8AB56EF)
        words = [0x208341839C2731A5, 0x6717BF1614CF7CC4]
        self.assertEqual(golden_case.bits(salt, 2).tolist(), words)
        self.assertEqual(golden_case.bits(salt, 1, first=1).tolist(), words[1:])
        wanted = [-96, -25, 73, 71, -85, -101, 15, 115]
        self.assertEqual((golden_case.formula("input.q", 1, (8,)) * 64).tolist(), wanted)
        scaled = golden_case.formula("input.q", 1, (2, 4), exponent=-2).flatten() * 256
        self.assertEqual(scaled.tolist(), wanted)

    def test_parameters_and_gradients(self):
        weight = golden_case.formula("param.W_QKV.weight", 7, (8,)) * 64
        self.assertEqual(weight.tolist(), [-76, -64, -126, -57, 127, -79, -62, -10])
        grad = golden_case.formula("grad_output", 2, (8,)) * 64
        self.assertEqual(grad.tolist(), [48, 75, -41, -118, -5, 38, -23, -16])
        widths = (1, 2, 3, 4, 15, 16, 63, 64, 512, 768)
        exponents = [golden_case.parameter_exponent((3, width)) for width in widths]
        self.assertEqual(exponents, [0, 0, 0, -1, -1, -2, -2, -3, -4, -4])

    def test_masks(self):
        random = golden_case.open_mask({"kind": "random", "shape": [3, 7]}, 5)
        rows = [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]]
        self.assertEqual(random.int().tolist(), rows)
        blocked = golden_case.open_mask({"kind": "row_blocked", "shape": [2, 2, 5]}, 5)
        ones, zeros = [1] * 5, [0] * 5
        self.assertEqual(blocked.int().tolist(), [[ones, ones], [[1, 1, 1, 1, 0], zeros]])
        tril = golden_case.open_mask({"kind": "tril", "shape": [2, 3], "offset": 1}, 5)
        self.assertEqual(tril.int().tolist(), [[1, 1, 0], [1, 1, 1]])

    def test_projections(self):
        x = golden_case.formula("input.q", 1, (3, 5))
        wanted = [6.546875, -0.078125, -0.203125, 4.421875, 7.984375, 5.109375]
        self.assertEqual(golden_file.project([x])[0, :6].tolist(), wanted)

    def test_every_dtype_holds_it_exactly(self):
        x = golden_case.formula("input.q", 1, (4096,))
        for name in ("float16", "bfloat16", "float32"):
            self.assertTrue(torch.equal(x.to(golden_case.DTYPES[name]).double(), x))


class TheCommittedFiles(unittest.TestCase):
    def test_each_belongs_to_a_case_and_carries_it(self):
        names = [case["name"] for case in CASES]
        self.assertEqual(len(names), len(set(names)))
        files = sorted(path.stem for path in (GOLDEN / "data").iterdir())
        self.assertEqual(files, sorted(names))
        for case in CASES:
            tensors, metadata = golden_file.read(GOLDEN / "data" / f"{case['name']}.safetensors")
            self.assertEqual(json.loads(metadata["case"]), case, "stale: scripts/export_golden.py")
            results = set(json.loads(metadata["tolerance"]))
            self.assertEqual(
                results | {f"f64.{x}" for x in results}, set(tensors) - {"dropout_keep"}
            )

    def test_all_of_them_stay_small(self):
        size = sum(path.stat().st_size for path in (GOLDEN / "data").iterdir())
        self.assertLess(size, LARGEST_FOLDER)

    def test_they_cover_every_kind_dtype_layout_and_tail(self):
        self.assertGreaterEqual(len(CASES), 80)
        self.assertEqual({case["module"] for case in CASES}, set(random_cases.KINDS))
        dtypes = {"float32", "float64", "bfloat16", "float16"}
        self.assertEqual({case["dtype"] for case in CASES}, dtypes)
        layouts = {"contiguous", "transposed", "strided", "fused", "expanded"}
        self.assertEqual({case.get("layout", "contiguous") for case in CASES}, layouts)
        shapes = [shape for case in CASES for shape in case["inputs"].values()]
        self.assertLessEqual({0, 1, 15, 16, 17, 31, 33}, {shape[-2] for shape in shapes})
        self.assertLessEqual({512, 768}, {shape[-1] for shape in shapes})
        heads = ("n_heads", "num_heads")
        split = [
            (case, case["options"][x]) for case in CASES for x in heads if x in case["options"]
        ]
        widths = {list(case["inputs"].values())[0][-1] // H for case, H in split}
        widths |= {
            case["options"]["qk_dim"] // H for case, H in split if "qk_dim" in case["options"]
        }
        self.assertLessEqual({1, 3, 16, 20, 64, 80}, widths)

    def test_a_fresh_export_lies_within_their_tolerance(self):
        """Dropout aside, whose random numbers depend on how torch was built."""
        for case in CASES:
            path = GOLDEN / "data" / f"{case['name']}.safetensors"
            stored, metadata = golden_file.read(path)
            if "dropout_keep" in stored:
                continue
            fresh, _ = golden_file.golden(case)
            self.assertEqual(set(fresh), set(stored))
            for name, bound in json.loads(metadata["tolerance"]).items():
                with self.subTest(case["name"], tensor=name):
                    exact = stored[f"f64.{name}"]
                    for run in (fresh[name], fresh[f"f64.{name}"], stored[name]):
                        finite = exact.isfinite()
                        self.assertTrue(same(run.double()[~finite], exact[~finite]))
                        error = golden_file.largest(run.double() - exact, finite)
                        self.assertLessEqual(error, bound)

    def test_dropout_returns_the_weights_that_it_kept(self):
        for case in CASES:
            stored, _ = golden_file.read(GOLDEN / "data" / f"{case['name']}.safetensors")
            if "dropout_keep" in stored and "weights" in stored:
                keep = stored["dropout_keep"] != 0
                self.assertTrue((stored["weights"][~keep] == 0).all())
                self.assertTrue((stored["weights"][keep] > 0).any())


class TheExporter(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def export(self, *arguments):
        command = [sys.executable, str(SCRIPTS / "export_golden.py"), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def test_exports_the_same_bytes_again_and_removes_files_without_a_case(self):
        chosen = [case for case in CASES if case["name"].startswith("score_layout_")]
        declared = self.folder / "cases.json"
        declared.write_text(json.dumps({"schema": 1, "cases": chosen}))
        once, twice = self.folder / "once", self.folder / "twice"
        once.mkdir()
        (once / "forgotten.safetensors").touch()
        self.assertEqual(self.export("--cases", declared, "--out", once).returncode, 0)
        name = chosen[0]["name"]
        self.assertEqual(self.export("--only", name, "--out", twice).returncode, 0)
        self.assertEqual({path.stem for path in once.iterdir()}, {c["name"] for c in chosen})
        self.assertEqual([path.stem for path in twice.iterdir()], [name])
        file = f"{name}.safetensors"
        self.assertEqual((once / file).read_bytes(), (twice / file).read_bytes())

    def test_refuses_a_name_that_no_case_has(self):
        result = self.export("--only", "no_such_case", "--out", self.folder)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("no_such_case", result.stderr)

    def test_writes_what_the_safetensors_package_reads(self):
        case = next(case for case in CASES if case["name"] == "projected_no_keys")
        path = golden_file.write(self.folder / "x.safetensors", *golden_file.golden(case))
        ours, metadata = golden_file.read(path)
        theirs = safetensors.torch.load_file(path)
        with safetensors.safe_open(path, "pt") as file:
            self.assertEqual(file.metadata(), metadata)
        self.assertEqual(set(ours), set(theirs))
        for name in ours:
            self.assertTrue(
                same(ours[name], theirs[name]) and ours[name].dtype == theirs[name].dtype
            )

    def test_live_bundles_repeat_and_hold_inputs_parameters_and_results(self):
        export_golden.export_live(self.folder, count=3, seed=1)
        first = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        export_golden.export_live(self.folder, count=3, seed=1)
        self.assertEqual(first, {path.name: path.read_bytes() for path in self.folder.iterdir()})
        self.assertEqual(set(first), {f"{kind}.safetensors" for kind in random_cases.KINDS})
        for path in self.folder.iterdir():
            tensors, metadata = golden_file.read(path)
            for case in json.loads(metadata["cases"]):
                lead = f"{case['name']}/"
                given = {x[len(lead) :]: t for x, t in tensors.items() if x.startswith(lead)}
                results = golden_case.evaluate(case, golden_case.make(case), given)
                stored = {x for x in given if not x.startswith(("input.", "param."))}
                self.assertEqual(stored, set(results))
                self.assertTrue(all(same(results[x], given[x]) for x in results), case)

    def test_initial_parameters_come_with_the_numbers_drawn_after_them(self):
        export_golden.export_init(self.folder)
        tensors, metadata = golden_file.read(self.folder / "init.safetensors")
        for init in json.loads(metadata["inits"]):
            torch.manual_seed(init["seed"])
            module, following = golden_case.make(init), torch.rand(4)
            self.assertTrue(torch.equal(tensors[f"{init['name']}/next"], following))
            for name, parameter in module.named_parameters():
                self.assertTrue(torch.equal(tensors[f"{init['name']}/{name}"], parameter))

    def test_quickstart_archives_give_the_stored_results(self):
        export_golden.export_quickstart(self.folder)
        for name in export_golden.QUICKSTART:
            stored, metadata = golden_file.read(self.folder / f"{name}.golden.safetensors")
            case = json.loads(metadata["case"])
            self.assertGreater(float(metadata["seconds"]), 0)
            if "weights" not in case:
                continue
            module = torch.jit.load(self.folder / f"{name}.ts").eval()
            weights = safetensors.torch.load_file(self.folder / f"{name}.safetensors")
            self.assertEqual(set(weights), set(module.state_dict()))
            for file in case["weights"][2:]:
                loaded = torch.load(self.folder / file, weights_only=True)
                self.assertEqual(list(loaded), list(module.state_dict()))
                self.assertTrue(all(torch.equal(x, weights[key]) for key, x in loaded.items()))
            arguments = golden_case.arguments_of(case, stored, torch.float32)
            with torch.no_grad():
                returned = module(**arguments)
            output = returned[0] if isinstance(returned, tuple) else returned
            self.assertTrue(torch.equal(output, stored["output"]), name)


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
