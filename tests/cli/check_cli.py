"""The attn command as a shell sees it: check_cli.py ATTN GOLDEN_FOLDER. Exit codes, streams, JSON."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ATTN, GOLDEN = sys.argv[1], pathlib.Path(sys.argv[2])
ONE = GOLDEN / "data" / "causal_head_size_3.safetensors"


def attn(*arguments, **more):
    return subprocess.run([ATTN, *map(str, arguments)], capture_output=True, text=True, **more)


class TheCommand(unittest.TestCase):
    def refused(self, result, code, words):
        self.assertEqual(result.returncode, code, result)
        self.assertIn(words, result.stderr + result.stdout)
        self.assertNotIn("frame #", result.stderr)  # LibTorch's backtraces

    def test_help_names_every_command(self):
        result = attn("--help")
        self.assertEqual(result.returncode, 0)
        for word in ("bench", "check", "info", "Exit codes"):
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

    def test_info_survives_a_wrong_environment(self):
        result = attn("info", "--json", env=os.environ | {"ATTN_BACKEND": "fast"})
        self.assertEqual(result.returncode, 0)
        facts = json.loads(result.stdout)
        self.assertIn("reference", facts["backends"])
        self.assertIn('got "fast"', facts["default backend"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
