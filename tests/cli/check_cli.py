"""The attn command as a shell sees it: check_cli.py ATTN GOLDEN_FOLDER. Exit codes, streams, JSON."""

import json
import math
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

ATTN, GOLDEN = sys.argv[1], pathlib.Path(sys.argv[2])
ONE = GOLDEN / "data" / "causal_head_size_3.safetensors"


def attn(*arguments, **more):
    return subprocess.run([ATTN, *map(str, arguments)], capture_output=True, text=True, **more)


def write_safetensors(path, tensors, metadata=None):
    """{name: (dtype, shape, bytes)}"""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """({name: (dtype, shape, bytes)}, metadata)"""
    content = path.read_bytes()
    data = 8 + struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:data])
    metadata = header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], content[data + begin : data + end])
    return tensors, metadata


def floats(*shape, start=1.0):
    """A tensor of start, start + 1, …"""
    count = math.prod(shape)
    return ("F32", list(shape), struct.pack(f"<{count}f", *(start + i for i in range(count))))


def write_tied_state_dict(path, size, stride=1):
    """What torch.save writes of {"a": x, "b": x}, x being float32 zeros: as many as the strides reach."""
    stored = (size - 1) * stride + 1
    integer = lambda value: b"J" + struct.pack("<i", value)
    text = lambda value: b"X" + struct.pack("<I", len(value)) + value
    storage = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(b"0") + text(b"cpu") + integer(stored) + b"tQ"
    geometry = integer(0) + integer(size) + b"\x85" + integer(stride) + b"\x85"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + geometry + b"\x89}tR"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02}(" + text(b"a") + tensor + b"q\x00" + text(b"b") + b"h\x00u.")
        archive.writestr("x/data/0", bytes(4 * stored))
        archive.writestr("x/version", "3\n")


def projected(prefix, size=8):
    """The weights of a ProjectedMultiheadAttention, all zero."""
    names = [f"{prefix}{map}.weight" for map in ("queryEncoder", "keyEncoder", "valueEncoder", "MHA.project_out")]
    return {name: ("F32", [size, size], bytes(4 * size * size)) for name in names}


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refused(self, result, code, words):
        self.assertEqual(result.returncode, code, result)
        self.assertIn(words, result.stderr + result.stdout)
        self.assertNotIn("frame #", result.stderr)  # LibTorch's backtraces


class TheCommand(CommandTest):
    def test_help_names_every_command(self):
        result = attn("--help")
        self.assertEqual(result.returncode, 0)
        for word in ("bench", "check", "convert", "info", "inspect", "Exit codes"):
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


class Convert(CommandTest):
    """A file from any format to any other, of which the bytes are read back here."""

    TENSORS = {
        "a.weight": floats(2, 3),
        "a.count": ("I64", [], struct.pack("<q", -5)),
        "b.weight": ("F16", [2], struct.pack("<2e", 0.5, -2)),
        "b.mask": ("BOOL", [3], bytes([1, 0, 1])),
        "empty": ("F64", [0, 4], b""),
    }

    def setUp(self):
        super().setUp()
        self.model = self.folder / "model.safetensors"
        write_safetensors(self.model, self.TENSORS, {"author": "Ada"})

    def converted(self, *arguments, out="out.safetensors", model=None):
        """What a conversion to safetensors has written."""
        result = attn("convert", model or self.model, self.folder / out, *arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""), result)
        return read_safetensors(self.folder / out)

    def test_every_format_carries_the_same_bytes_to_the_next(self):
        last = self.model
        formats = {"x.pt": "state_dict", "x.ts": "TorchScript", "x.npz": "npz", "x.safetensors": "safetensors"}
        for name, format in formats.items():
            result = attn("convert", last, self.folder / name)
            self.assertEqual(result.returncode, 0, result)
            self.assertRegex(result.stdout, rf"\A{re.escape(str(self.folder / name))}: 5 tensors, \d+(\.\d)? k?B\n\Z")
            last = self.folder / name
            self.assertEqual(json.loads(attn("inspect", last, "--json").stdout)["format"], format)
        tensors, metadata = read_safetensors(last)
        self.assertEqual(tensors, self.TENSORS)
        self.assertEqual(metadata, {"format": "pt"})  # it came from elsewhere

    def test_the_metadata_of_safetensors_is_kept(self):
        self.assertEqual(self.converted()[1], {"author": "Ada"})

    def test_a_file_may_be_converted_into_itself(self):
        tensors, metadata = self.converted("--dtype", "float64", out="model.safetensors")
        self.assertEqual(tensors["a.weight"], ("F64", [2, 3], struct.pack("<6d", *range(1, 7))))
        self.assertEqual([file.name for file in self.folder.iterdir()], ["model.safetensors"])

    def test_dtype_changes_floating_tensors_alone(self):
        tensors, _ = self.converted("--dtype", "bfloat16")
        self.assertEqual(tensors["b.weight"], ("BF16", [2], bytes([0x00, 0x3F, 0x00, 0xC0])))
        self.assertEqual([tensors[name][0] for name in ("a.weight", "b.weight", "empty")], ["BF16"] * 3)
        for name in ("a.count", "b.mask"):
            self.assertEqual(tensors[name], self.TENSORS[name])
        self.refused(attn("convert", self.model, self.model, "--dtype", "int64"), 2, "int64")

    def test_tied_tensors_stay_one_in_another_dtype(self):
        tied = self.folder / "tied.pt"
        write_tied_state_dict(tied, 256)
        attn("convert", tied, self.folder / "double.pt", "--dtype", "float64")
        self.assertLess((self.folder / "double.pt").stat().st_size, 2 * 8 * 256)
        tensors, _ = self.converted(model=self.folder / "double.pt")
        self.assertEqual(tensors, dict.fromkeys(("a", "b"), ("F64", [256], bytes(8 * 256))))

    def test_one_number_repeated_without_end_is_refused(self):
        bomb = self.folder / "bomb.pt"
        write_tied_state_dict(bomb, 2**31 - 1, stride=0)
        self.refused(attn("convert", bomb, self.model), 3, "in: expected tensors that repeat their bytes up to 64 times")
        write_tied_state_dict(bomb, 1000, stride=0)
        self.assertEqual(self.converted(model=bomb)[0]["a"], ("F32", [1000], bytes(4000)))

    def test_prefix_keeps_the_names_under_it(self):
        result = attn("convert", self.model, self.folder / "out.safetensors", "--prefix", "a.")
        self.assertIn(": 2 tensors, ", result.stdout)
        self.assertIn("left out: b.weight (float16 [2]), ", result.stdout)
        tensors, _ = read_safetensors(self.folder / "out.safetensors")
        self.assertEqual(tensors, {"weight": self.TENSORS["a.weight"], "count": self.TENSORS["a.count"]})
        words = '--prefix: expected the beginning of a tensor\'s name, got "c."'
        self.refused(attn("convert", self.model, self.model, "--prefix", "c."), 3, words)

    def test_what_is_left_out_is_told_in_one_line(self):
        write_safetensors(self.model, {f"t{i}": floats(1) for i in range(9)} | {"a.x": floats(1)})
        result = attn("convert", self.model, self.folder / "out.pt", "--prefix", "a.")
        self.assertEqual(result.stdout.count("\n"), 2, result)
        self.assertTrue(result.stdout.endswith(" and 4 more; attn inspect lists all\n"), result)
        self.assertIn(": 1 tensor, ", result.stdout)
        quiet = attn("convert", self.model, self.folder / "out.pt", "--prefix", "a.", "--quiet")
        self.assertEqual((quiet.returncode, quiet.stdout, quiet.stderr), (0, "", ""))

    def test_a_layout_is_converted_under_the_prefix(self):
        theirs = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
        ours = ("W_QKV.weight", "W_QKV.bias", "W_O.weight", "W_O.bias")
        layer = [floats(6, 2), floats(6), floats(2, 2), floats(2)]
        write_safetensors(self.model, {f"x.{name}": tensor for name, tensor in zip(theirs, layer)})
        tensors, _ = self.converted("--prefix", "x.", "--layout", "torch-multihead")
        self.assertEqual(tensors, dict(zip(ours, layer)))
        first = self.folder / "out.safetensors"
        back, _ = self.converted("--layout", "to-torch-multihead", model=first, out="back.safetensors")
        self.assertEqual(back, dict(zip(theirs, layer)))
        wrong = attn("convert", self.model, self.folder / "no.pt", "--layout", "torch-multihead")
        self.refused(wrong, 3, "expected the layout torch-multihead alone")
        self.assertFalse((self.folder / "no.pt").exists())

    def test_heads_are_for_layouts_that_must_be_told(self):
        neox = {"query_key_value.weight": floats(6, 2), "query_key_value.bias": floats(6)}
        write_safetensors(self.model, neox | {"dense.weight": floats(2, 2), "dense.bias": floats(2)})
        self.refused(attn("convert", self.model, self.model, "--layout", "gpt-neox"), 3, "n_heads")
        tensors, _ = self.converted("--layout", "gpt-neox", "--heads", "2")
        # Heads of size 1: q k v of the first, then of the second.
        self.assertEqual(struct.unpack("<6f", tensors["W_QKV.bias"][2]), (1, 4, 2, 5, 3, 6))
        self.refused(attn("convert", self.model, self.model, "--heads", "2"), 2, "--layout")

    def test_a_npy_file_gives_its_tensor_its_own_name(self):
        self.assertEqual(attn("convert", self.model, self.folder / "w.npy").returncode, 3)
        write_safetensors(self.model, {"weight": floats(2, 3)})
        self.assertEqual(attn("convert", self.model, self.folder / "bias.npy").returncode, 0)
        self.assertEqual(self.converted(model=self.folder / "bias.npy")[0], {"bias": floats(2, 3)})

    def test_format_overrules_the_suffix(self):
        out = self.folder / "out"
        self.refused(attn("convert", self.model, out), 2, "out: expected the suffix .safetensors, .pt, ")
        self.assertEqual(attn("convert", self.model, out, "--format", "npz").returncode, 0)
        self.assertEqual(json.loads(attn("inspect", out, "--json").stdout)["format"], "npz")
        self.refused(attn("convert", self.model, out, "--format", "onnx"), 2, "onnx")

    def test_a_refused_conversion_leaves_the_old_file(self):
        write_safetensors(self.model, {"a b": floats(2), "half": ("BF16", [1], bytes(2))})
        for out, words in {"old.npz": "bfloat16", "old.ts": '"a b"', "old.npy": "expected one"}.items():
            (self.folder / out).write_text("old")
            result = attn("convert", self.model, self.folder / out)
            self.refused(result, 3, words)
            self.assertEqual(result.stderr.count("\n"), 1, result)
            self.assertEqual((self.folder / out).read_text(), "old")
        self.assertEqual(len(list(self.folder.iterdir())), 4)  # no temporary file

    def seen_on_a_terminal(self, *arguments):
        """What a command writes to stderr where that is one."""
        ours, theirs = pty.openpty()
        result = subprocess.run([ATTN, *map(str, arguments)], stdout=subprocess.PIPE, stderr=theirs)
        os.write(theirs, b"END")
        seen = b""
        while not seen.endswith(b"END"):
            seen += os.read(ours, 4096)
        os.close(ours)
        os.close(theirs)
        self.assertEqual(result.returncode, 0, result)
        return seen.removesuffix(b"END").decode()

    def test_only_a_large_file_shows_progress_and_only_on_a_terminal(self):
        self.assertEqual(self.seen_on_a_terminal("convert", self.model, self.folder / "x.pt"), "")
        large = self.folder / "large.safetensors"
        write_safetensors(large, {"a": ("U8", [64 << 20], bytes(64 << 20))})
        seen = self.seen_on_a_terminal("convert", large, self.folder / "x.pt")
        self.assertIn("/x.pt [#######                       ]  25 % of 67.1 MB", seen)
        self.assertIn("[##############################] 100 % of", seen)
        self.assertTrue(seen.endswith("\r\033[K"), seen)
        self.assertEqual(self.seen_on_a_terminal("convert", large, self.folder / "x.pt", "--quiet"), "")
        self.assertEqual(attn("convert", large, self.folder / "x.pt").stderr, "")

    def test_wrong_usage_and_bad_files(self):
        self.refused(attn("convert", self.model), 2, "out is required")
        self.refused(attn("convert", self.model, self.model, "--layout", "bart"), 2, "attention-learn-to-route")
        self.refused(attn("convert", "/nowhere", self.folder / "x.pt"), 3, "/nowhere")
        self.refused(attn("convert", self.model, self.folder / "no" / "x.pt"), 3, "x.pt")
        self.refused(attn("convert", self.folder, self.folder / "x.pt"), 3, "directory")

    def test_unknown_classes_are_left_out_when_asked(self):
        with zipfile.ZipFile(self.folder / "x.pt", "w") as archive:
            archive.writestr("x/data.pkl", b"\x80\x02}X\x01\x00\x00\x00acnowhere\nThing\n)Rs.")
            archive.writestr("x/version", "3\n")
        self.refused(attn("convert", self.folder / "x.pt", self.model), 3, "nowhere.Thing")
        result = attn("convert", self.folder / "x.pt", self.folder / "y.pt", "--opaque")
        self.assertEqual(result.returncode, 0, result)
        self.assertIn(": 0 tensors, ", result.stdout)
        self.assertIn("left out: a (", result.stdout)


class CheckWeights(CommandTest):
    """With one key, attention is the value: a PreprojectedMultiheadAttention gives W · value."""

    WEIGHT = ("F32", [2, 2], struct.pack("<4f", 1, 2, 3, 4))
    INPUTS = {"query": floats(1, 1, 2), "key": floats(1, 1, 2), "value": floats(1, 1, 2, start=5.0)}
    OUTPUT = ("F32", [1, 1, 2], struct.pack("<2f", 17, 39))
    MODULE = "PreprojectedMultiheadAttention"

    def setUp(self):
        super().setUp()
        self.model, self.golden = self.folder / "model.safetensors", self.folder / "golden.safetensors"
        write_safetensors(self.model, {"a.project_out.weight": self.WEIGHT, "b.project_out.weight": floats(2, 2)})

    def by_hand(self, tensors):
        write_safetensors(self.golden, tensors)
        module = ["--prefix", "a.", "--module", self.MODULE, "--heads", "1"]
        return ["--golden", self.golden, "--weights", self.model, *module]

    def declared(self):
        inputs = {name: shape for name, (_, shape, _) in self.INPUTS.items()}
        case = {"name": "tiny", "module": self.MODULE, "options": {"embedding_dim": 2, "n_heads": 1}}
        case |= {"dtype": "float32", "inputs": inputs, "seed": 1, "gradients": False}
        tensors = {f"input.{name}": tensor for name, tensor in self.INPUTS.items()} | {"output": self.OUTPUT}
        tensors["f64.output"] = ("F64", [1, 1, 2], struct.pack("<2d", 17, 39))
        write_safetensors(self.golden, tensors, {"case": json.dumps(case), "tolerance": '{"output": 1e-5}'})
        return ["--weights", self.model, "--prefix", "a."]

    def test_a_file_made_by_hand_is_held_to_a_derived_bound(self):
        result = attn("check", *self.by_hand(self.INPUTS | {"output": self.OUTPUT}), "--json")
        self.assertEqual(result.returncode, 0, result)
        for row in json.loads(result.stdout):
            self.assertEqual((row["module"], row["file"]), (self.MODULE, "model.safetensors"))
            self.assertEqual(row["from_python"], 0)  # small integers
            # At least 8 u · 39; all of a sum of two products off by a rounding of each factor is 2 u · 39.
            self.assertGreaterEqual(row["tolerance"], 8 * 2**-24 * 39)
            self.assertLess(row["tolerance"], 8 * 4 * 2**-24 * 39)

    def test_another_output_disagrees(self):
        near = ("F32", [1, 1, 2], struct.pack("<2f", 17, 39.001))
        arguments = self.by_hand(self.INPUTS | {"output": near})
        self.refused(attn("check", *arguments), 1, "DISAGREES")
        self.assertEqual(attn("check", *arguments, "--tolerance", "0.01").returncode, 0)
        other = [x if x != "a." else "b." for x in self.by_hand(self.INPUTS | {"output": self.OUTPUT})]
        self.assertEqual(attn("check", *other).returncode, 0)  # b. has the same numbers
        write_safetensors(self.model, {"a.project_out.weight": floats(2, 2, start=2.0)})
        self.refused(attn("check", *arguments), 1, "DISAGREES")

    def test_a_mask_made_by_hand_is_passed_as_it_is(self):
        tensors = {name: (dtype, [1, 2, 2], 2 * content) for name, (dtype, _, content) in self.INPUTS.items()}
        tensors["value"] = ("F32", [1, 2, 2], self.INPUTS["value"][2] + bytes(8))
        tensors["output"] = ("F32", [1, 2, 2], 2 * self.OUTPUT[2])
        self.refused(attn("check", *self.by_hand(tensors)), 1, "DISAGREES")
        tensors["mask"] = ("BOOL", [1, 1, 2], bytes([0, 1]))  # blocks the second key
        self.assertEqual(attn("check", *self.by_hand(tensors)).returncode, 0)

    def test_a_declared_case_runs_with_the_given_weights(self):
        arguments = self.declared()
        self.refused(attn("check", self.golden), 1, "DISAGREES")  # the formula's weights
        result = attn("check", self.golden, *arguments, "--module", self.MODULE, "--heads", "1")
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("model.safetensors", result.stdout)
        pickled = self.folder / "model.pt"
        attn("convert", self.model, pickled)
        self.assertEqual(attn("check", self.golden, "--weights", pickled, "--prefix", "a.").returncode, 0)

    def test_what_was_said_must_be_what_the_file_says(self):
        arguments = self.declared()
        wrong = attn("check", self.golden, *arguments, "--module", "AttentionScore")
        self.refused(wrong, 3, "--module: expected PreprojectedMultiheadAttention")
        self.refused(attn("check", self.golden, *arguments, "--heads", "2"), 3, "--heads: expected 1")
        self.refused(attn("check", self.golden, "--weights", self.model), 3, 'did you mean prefix "a."')

    def test_a_file_made_by_hand_needs_module_names_and_weights_that_fit(self):
        good = self.INPUTS | {"output": self.OUTPUT}
        arguments = self.by_hand(good)
        self.refused(attn("check", self.golden, "--weights", self.model, "--prefix", "a."), 3, "or --module")
        for name, value, words in (
            ("--module", "Linear", "expected the name of a module of attn"),
            ("--module", "CausalMultiheadAttention", 'tensors named "output", "mask", "x", got "query"'),
            ("--prefix", "c.", 'got none that attn recognises in'),
            ("--prefix", "c.", 'it has one under "a.", "b."'),
            ("--heads", "3", "expected"),
        ):  # fmt: skip
            changed = list(arguments)
            changed[changed.index(name) + 1] = value
            self.refused(attn("check", *changed), 3, words)
        self.refused(attn("check", *self.by_hand(self.INPUTS)), 3, 'expected a tensor "output"')
        self.refused(attn("check", *self.by_hand(good | {"outptu": self.OUTPUT})), 3, 'got "outptu"')

    def test_usage(self):
        self.refused(attn("check", self.golden, "--prefix", "a."), 2, "--prefix requires --weights")
        self.refused(attn("check", self.golden, "--golden", self.golden), 2, "path excludes --golden")
        self.refused(attn("check", "--weights", self.model), 2, "path is required")
        self.refused(attn("check", GOLDEN / "data", "--weights", self.model), 3, "expected one golden file")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
