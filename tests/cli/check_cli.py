"""The attn command as a shell sees it: check_cli.py ATTN GOLDEN_FOLDER. Exit codes, streams, JSON."""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

ATTN, GOLDEN = sys.argv[1], pathlib.Path(sys.argv[2])
ONE = GOLDEN / "data" / "causal_head_size_3.safetensors"


def attn(*arguments, **more):
    return subprocess.run([ATTN, *map(str, arguments)], capture_output=True, text=True, **more)


def write_safetensors(path, tensors):
    """{name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def projected(prefix, size=8):
    """The weights of a ProjectedMultiheadAttention, all zero."""
    names = [f"{prefix}{map}.weight" for map in ("queryEncoder", "keyEncoder", "valueEncoder", "MHA.project_out")]
    return {name: ("F32", [size, size], bytes(4 * size * size)) for name in names}


class TheCommand(unittest.TestCase):
    def refused(self, result, code, words):
        self.assertEqual(result.returncode, code, result)
        self.assertIn(words, result.stderr + result.stdout)
        self.assertNotIn("frame #", result.stderr)  # LibTorch's backtraces

    def test_help_names_every_command(self):
        result = attn("--help")
        self.assertEqual(result.returncode, 0)
        for word in ("bench", "check", "info", "inspect", "Exit codes"):
            self.assertIn(word, result.stdout)

    def test_wrong_usage_is_2(self):
        self.refused(attn(), 2, "subcommand is required")
        self.refused(attn("chek"), 2, 'unknown command "chek"')
        self.refused(attn("check"), 2, "path is required")
        self.refused(attn("check", ONE, "--backend", "cuda"), 2, "cuda")
        self.refused(attn("bench", "--rows", "("), 2, "rows")
        self.refused(attn("bench", "--threads", "0"), 2, "threads")

    def test_bad_input_is_3(self):
        self.refused(attn("check", "/nowhere"), 3, "expected a golden file")
        self.refused(attn("check", GOLDEN / "cases.json"), 3, "expected a golden file")
        with tempfile.TemporaryDirectory() as folder:
            self.refused(attn("check", folder), 3, "expected a golden file or a folder")
        self.refused(attn("bench", "--rows", "no such row"), 3, "expected an expression that matches a row")

    def test_agreement_is_0_and_json_holds_it(self):
        result = attn("check", ONE, "--json", "--cases", GOLDEN / "cases.json")
        self.assertEqual(result.returncode, 0, result)
        rows = json.loads(result.stdout)
        backends = json.loads(attn("info", "--json").stdout)["backends"]
        self.assertEqual([row["backend"] for row in rows], backends)
        self.assertEqual({row["verdict"] for row in rows}, {"agrees"})

    def test_a_backend_that_refuses_is_skipped_with_its_reason(self):
        masked = GOLDEN / "data" / "xavier_row_fully_masked.safetensors"
        result = attn("check", masked, "--backend", "libtorch")
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("skipped: it removes blocked keys", result.stdout)
        self.assertIn("0 of 1 agree within their bounds, 1 skipped", result.stdout)

    def test_only_the_reference_is_asked_for_bits(self):
        self.refused(attn("check", ONE, "--exact", "--backend", "libtorch"), 2, "--backend reference")
        result = attn("check", ONE, "--exact", "--json")
        self.assertEqual([row["backend"] for row in json.loads(result.stdout)], ["reference"])

    def test_disagreement_and_stale_files_are_1(self):
        with tempfile.TemporaryDirectory() as folder:
            wrong = pathlib.Path(folder) / "wrong.safetensors"
            data = ONE.read_bytes()
            digit = data.index(b'\\"seed\\":') + len(b'\\"seed\\":')
            other = b"1" if data[digit : digit + 1] != b"1" else b"2"
            wrong.write_bytes(data[:digit] + other + data[digit + 1 :])
            self.refused(attn("check", wrong), 1, "DISAGREES")
            self.refused(attn("check", wrong, "--cases", GOLDEN / "cases.json"), 1, "STALE")

    def test_lost_output_is_not_success(self):
        with open("/dev/full", "w") as full:
            code = subprocess.run([ATTN, "check", ONE], stdout=full, stderr=subprocess.PIPE).returncode
        self.assertEqual(code, 3)

    def test_info_says_which_backend_takes_what_and_why_not(self):
        result = attn("info")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"(?m)^projections +(oneDNN|LibTorch's linear) \(")
        self.assertRegex(result.stdout, r"(?m)^softcap .*\bno\b.* libtorch: it has no softcap$")
        takes = json.loads(attn("info", "--json").stdout)["takes"]
        self.assertEqual(takes["plain"]["libtorch"], "yes")
        self.assertEqual(takes["softcap"]["libtorch"], "no: it has no softcap")
        self.assertEqual({row["reference"] for row in takes.values()}, {"yes"})

    def test_info_names_the_simd_target_that_was_asked_for(self):
        facts = json.loads(attn("info", "--json").stdout)
        targets = facts["simd targets"]
        self.assertIn(facts["simd"], targets)
        for target in targets:
            forced = json.loads(attn("info", "--json", env=os.environ | {"ATTN_SIMD": target}).stdout)
            self.assertEqual((forced["simd"], forced["simd targets"]), (target, targets))
        if "avx2" in targets:
            self.assertRegex(attn("info", env=os.environ | {"ATTN_SIMD": "avx2"}).stdout, r"(?m)^simd +avx2$")

    def test_a_simd_target_that_the_cpu_lacks_is_an_error_with_those_that_it_has(self):
        targets = json.loads(attn("info", "--json").stdout)["simd targets"]
        words = f'ATTN_SIMD: expected one of {", ".join(targets)} on this CPU, got "mmx"'
        nonsense = os.environ | {"ATTN_SIMD": "mmx"}
        self.refused(attn("check", ONE, "--backend", "fused", env=nonsense), 3, words)
        info = attn("info", env=nonsense)  # survives, and says so
        self.assertEqual(info.returncode, 0)
        self.assertIn(words, info.stdout)
        self.assertEqual(attn("check", ONE, "--backend", "reference", env=nonsense).returncode, 0)

    def test_every_simd_target_agrees_with_python_on_all_golden_cases(self):
        for target in json.loads(attn("info", "--json").stdout)["simd targets"]:
            with self.subTest(target=target):
                result = attn(
                    "check", GOLDEN / "data", "--backend", "fused", "--json", env=os.environ | {"ATTN_SIMD": target}
                )
                rows = json.loads(result.stdout)
                wrong = [row for row in rows if row["verdict"] not in ("agrees", "skipped")]
                self.assertEqual((result.returncode, wrong), (0, []))
                # Gradients are compared as well, but through returned weights.
                notes = {row["reason"] for row in rows if row["verdict"] == "agrees"} - {""}
                self.assertEqual(notes, {"outputs only: it has no gradient through returned weights (need_weights)"})
                # Dropout, and what ends ahead of every backend.
                self.assertLess(sum(row["verdict"] == "skipped" for row in rows), len(rows) / 4)

    def test_bench_measures_the_rows_that_were_asked_for(self):
        result = attn("bench", "--rows", "small/fp32 T(8|16) ", "--seconds", "0.01", "--json")
        self.assertEqual(result.returncode, 0, result)
        facts = json.loads(result.stdout)
        self.assertEqual([row["name"] for row in facts["rows"]], ["fp32 T8 D64", "fp32 T16 D64"])
        self.assertEqual(facts["threads"], 1)
        self.assertGreater(facts["peak_float32"], 0)
        for row in facts["rows"]:
            for who in ("attn_seconds", "sdpa_seconds", "eager_seconds"):
                self.assertGreater(row[who], 0)
        table = attn("bench", "--rows", "other/.*clip", "--seconds", "0")
        self.assertRegex(table.stdout, r"other/fp32 T512 D64 logit clip +[0-9.]+ +– +[0-9.]+ ")
        backward = attn("bench", "--rows", "^training backward/fp32 T128 D64$", "--seconds", "0")
        self.assertRegex(backward.stdout, r"training backward/fp32 T128 D64( +[0-9.]+){5} +[0-9]+ % +GFLOP/s ")

    def inspected(self, tensors, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "model.safetensors"
            write_safetensors(file, tensors)
            result = attn("inspect", file, *arguments)
            # A long path breaks a line of code.
            result.stdout = re.sub(r",\n {10,}", ", ", result.stdout.replace(str(file), "FILE"))
            return result

    def test_inspect_lists_the_tensors_and_the_layers_with_the_code_that_loads_them(self):
        tensors = projected("layers.0.module.") | projected("layers.1.module.")
        tensors["norm.weight"] = ("F16", [500], bytes(1000))
        result = self.inspected(tensors)
        self.assertEqual(result.returncode, 0, result)
        self.assertRegex(result.stdout, r"\AFILE: safetensors, \d.\d kB; 9 tensors of 3.0 kB\n")
        self.assertIn("\n[8, 8]  float32  256 B   layers.0.module.keyEncoder.weight\n", result.stdout)
        self.assertIn("\n[500]   float16  1.0 kB  norm.weight\n", result.stdout)
        end = """
layers.0.module. fits ProjectedMultiheadAttention(8, n_heads ?)
layers.1.module. fits ProjectedMultiheadAttention(8, n_heads ?)
    attn::ProjectedMultiheadAttention layer(8);  // n_heads ?: not in the file
    attn::load_weights(layer, "FILE", attn::LoadOptions().prefix("layers.1.module."));
"""
        self.assertTrue(result.stdout.endswith(end), result.stdout)
        self.assertIn("No attention layer that attn knows.", self.inspected({"a": ("F32", [1], bytes(4))}).stdout)

    def test_inspect_names_the_layout_that_a_layer_needs(self):
        heads = {f"W_{name}": ("F32", [2, 4, 2], bytes(64)) for name in ("query", "key", "val")}
        result = self.inspected(heads | {"W_out": ("F32", [2, 2, 4], bytes(64))})
        fits = "The file fits ProjectedMultiheadAttention(4, n_heads 2), layout attention-learn-to-route\n"
        self.assertIn(fits, result.stdout)
        self.assertIn('attn::LoadOptions().layout("attention-learn-to-route")', result.stdout)

    def test_inspect_counts_nan_and_finds_extremes(self):
        tensors = {
            "a": ("F32", [4], struct.pack("<4f", 1.5, float("nan"), -2, float("inf"))),
            "b": ("I64", [2], struct.pack("<2q", -7, 2**62)),
            "c": ("F32", [0], b""),
            "d": ("F8_E4M3", [2], bytes([0x38, 0x7F])),  # 1 and NaN
            "e": ("BOOL", [2], bytes([0, 1])),
            "f": ("F8_E8M0", [2], bytes([128, 127])),
            "g": ("U64", [1], bytes(8)),
            "h": ("F4", [2], bytes(1)),
        }
        result = self.inspected(tensors, "--stats")
        rows = {line.split()[-1]: line.split()[-4:-1] for line in result.stdout.splitlines() if line.startswith("[")}
        largest = str(2**62)
        expected = {"a": ["-2", "inf", "1"], "b": ["-7", largest, "0"], "c": ["–", "–", "0"], "d": ["1", "1", "1"]}
        expected |= {"e": ["0", "1", "0"], "f": ["1", "2", "0"], "g": ["0", "0", "0"], "h": ["–"] * 3}
        self.assertEqual(rows, expected)
        rows = json.loads(self.inspected(tensors, "--stats", "--json").stdout)["tensors"]
        found = [(row["min"], row["max"], row["nan"]) for row in rows[:3]]
        self.assertEqual(found, [(-2, "inf", 1), (-7, 2**62, 0), (None, None, 0)])

    def test_inspect_tells_all_in_json(self):
        facts = json.loads(self.inspected(projected("a.") | {"b.c": ("BF16", [3], bytes(6))}, "--json").stdout)
        self.assertEqual((facts["format"], facts["tensor_bytes"]), ("safetensors", 4 * 256 + 6))
        self.assertEqual(facts["tensors"][-1], {"name": "b.c", "shape": [3], "dtype": "bfloat16", "bytes": 6})
        layer = facts["layers"][0]
        self.assertEqual((layer["prefix"], layer["module"]), ("a.", "attn::ProjectedMultiheadAttention"))
        self.assertEqual(layer["arguments"], {"embedding_dim": 8, "n_heads": None})

    def test_inspect_shows_what_is_under_a_prefix_alone(self):
        tensors = projected("a.") | {"b.c": ("F32", [3], bytes(12))}
        facts = json.loads(self.inspected(tensors, "--prefix", "b.", "--json").stdout)
        self.assertEqual([row["name"] for row in facts["tensors"]], ["b.c"])
        self.assertEqual(facts["layers"], [])
        words = "expected the beginning of a tensor's name, got \"x\""
        self.refused(self.inspected(tensors, "--prefix", "x"), 3, words)

    def test_inspect_prints_no_control_characters_of_a_file(self):
        name = "a\x1b[2J\u202e\u0085é"
        result = self.inspected({name: ("F32", [], bytes(4))})
        self.assertIn(r"a\x1b[2J\u202e\u0085é", result.stdout)
        result = self.inspected({name: ("F32", [], bytes(4))}, "--json")
        self.assertTrue(result.stdout.isascii())
        self.assertEqual(json.loads(result.stdout)["tensors"][0]["name"], name)

    def test_inspect_refuses_what_is_no_weight_file(self):
        self.refused(attn("inspect", "/nowhere"), 3, "/nowhere")
        self.refused(attn("inspect", GOLDEN / "cases.json"), 3, "cases.json")
        self.refused(attn("inspect"), 2, "file is required")

    def test_info_survives_a_wrong_environment(self):
        result = attn("info", "--json", env=os.environ | {"ATTN_BACKEND": "fast"})
        self.assertEqual(result.returncode, 0)
        facts = json.loads(result.stdout)
        self.assertIn("reference", facts["backends"])
        self.assertIn('got "fast"', facts["default backend"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
