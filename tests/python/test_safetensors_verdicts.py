#!/usr/bin/env python3
"""Holds the safetensors reader to the verdicts of the Python package, on thousands of mutated files.

The files go to the program that ATTN_JUDGE names (judge_safetensors.cpp) through one stream. Both
must refuse a file, or both read the same tensors, bytes and metadata from it. Where the package
accepts and attn refuses, the file must break a rule of `STRICTER`, and where it breaks one, attn
must refuse.
"""

import json
import os
import random
import re
import struct
import subprocess
import tempfile
import unittest
from collections import Counter
from pathlib import Path

import safetensors

JUDGE = os.environ.get("ATTN_JUDGE")
SEED = int(os.environ.get("ATTN_TEST_SEED", "1"))
OF_EACH_KIND = 600

BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8}
BITS |= {"F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16}
BITS |= {"BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+|[{}\[\],:]', re.S)
WORDS = ['"F32"', '"w"', '"dtype"', '"shape"', '"data_offsets"', '"__metadata__"', "0", "1", "4", "8"]
WORDS += ["null", "true", "-1", "1.0", "1e2", "[]", "{}", "[0]", '""', ",", ":", "[", "]", "{", "}"]
SIZES = [0, 1, 2, 3, 5, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64]
ODD_VALUES = ["null", "true", "-1", "-0", "1.0", "1e0", '"4"', "{}", "[]", "[[4]]", "1e999", "01", "+1"]
NAMES = ["", "w", "a.b", "é", "e\\u0301", "\\u0041", "\\ud83d\\ude00", "😀", '\\"', "\\\\", "\\/", "\\n"]
NAMES += ["\\u0000", "\\ud800", "\\udc00\\ud800", "\\x41", "\\u12", "\n", "\t", "\x7f", "x" * 5000]
NAMES += ["__metadata__", "__METADATA__", "dtype", "\\u005f_metadata__", "\ufeff", "\U0010ffff"]


def field(dtype, shape, begin, end):
    """The JSON of a tensor."""
    return {"dtype": f'"{dtype}"', "shape": json.dumps(shape), "data_offsets": f"[{begin}, {end}]"}


def byte_size(dtype, shape):
    """Of whole bytes; None where the elements do not fill them."""
    bits = BITS[dtype]
    for size in shape:
        bits *= size
    return None if bits % 8 else bits // 8


class File:
    """A file under change: everything in it is text or bytes, so that nothing need be valid."""

    def __init__(self, rng):
        self.rng = rng
        self.entries, end = [], 0
        for number in range(rng.randint(0, 4)):
            dtype = rng.choice(list(BITS))
            shape = [rng.choice((0, 1, 2, 3, 4, 8)) for _ in range(rng.randint(0, 4))]
            if byte_size(dtype, shape) is None:
                shape.append(4)
            begin, end = end, end + byte_size(dtype, shape)
            self.entries.append([f'"{chr(97 + number)}"', field(dtype, shape, begin, end)])
        rng.shuffle(self.entries)
        self.metadata = rng.choice((None, None, "{}", '{"k":"v"}', '{"{":"}","é":"\\u00e9"}'))
        self.data = rng.randbytes(end)
        self.before, self.after = "", rng.choice(("", "", " ", "   \n"))

    def some(self):
        """A tensor's fields; there is one."""
        if not self.entries:
            self.entries.append(['"w"', field("F32", [1], 0, 4)])
            self.data = self.rng.randbytes(4)
        return self.rng.choice(self.entries)[1]

    def text(self):
        parts = []
        if self.metadata is not None:
            parts.append(f'"__metadata__":{self.metadata}')
        for name, fields in self.entries:
            if isinstance(fields, dict):
                fields = "{" + ",".join(f'"{key}":{value}' for key, value in fields.items()) + "}"
            parts.append(f"{name}:{fields}")
        return self.before + "{" + ",".join(parts) + "}" + self.after

    def header(self):
        return self.text().encode("utf-8", "surrogatepass")

    def bytes(self, header=None, length=None):
        header = self.header() if header is None else header
        return struct.pack("<Q", len(header) if length is None else length) + header + self.data


def unchanged(file):
    return file.bytes()


def flipped_bytes(file):
    changed = bytearray(file.bytes())
    for _ in range(file.rng.randint(1, 3)):
        changed[file.rng.randrange(len(changed) - len(file.data))] = file.rng.choice(
            (file.rng.randrange(256), ord(file.rng.choice(' "{}[],:0123456789\\e-.')))
        )
    return bytes(changed)


def flipped_bits(file):
    changed = bytearray(file.bytes())
    changed[file.rng.randrange(len(changed) - len(file.data))] ^= 1 << file.rng.randrange(8)
    return bytes(changed)


def cut_or_longer(file):
    whole = file.bytes()
    if file.rng.random() < 0.3:
        return whole + file.rng.randbytes(file.rng.randint(1, 9))
    return whole[: file.rng.randrange(len(whole) + 1)]


def length_lies(file):
    true = len(file.header())
    lies = [true + file.rng.randint(-9, 9), 0, 1, 2**31, 2**32 + true, 2**63, 2**64 - 1, 2**64 - 8]
    lies += [100_000_000, 100_000_001, true + len(file.data), true + len(file.data) + 1]
    return file.bytes(length=file.rng.choice(lies) % 2**64)


def other_dtypes(file):
    fields = file.some()
    dtype = file.rng.choice([*BITS, "f32", "F32 ", "", "Q4", "I4", "BF8", "F128", "C32", "C128"])
    odd = ODD_VALUES + ['{"F32":null}', '{"F32":1}', '{"F32":null,"F16":null}', '["F32"]', '"F\\u00332"']
    fields["dtype"] = file.rng.choice(odd) if file.rng.random() < 0.4 else f'"{dtype}"'
    return file.bytes()


def other_shapes(file):
    fields = file.some()
    shape = json.loads(fields["shape"])
    way = file.rng.randrange(6)
    if way == 0:
        shape.insert(file.rng.randint(0, len(shape)), file.rng.choice(SIZES))
    elif way == 1:
        shape = [file.rng.choice(SIZES) for _ in range(file.rng.randint(1, 4))]
    elif way == 2:
        shape = [1] * file.rng.choice((1, 8, 63, 64, 65, 66, 500)) + shape
        file.rng.shuffle(shape)
    elif way == 3:
        file.rng.shuffle(shape)
        shape = shape[::-1]
    elif way == 4:  # no bytes, and sizes that only a zero keeps small
        shape = [0, file.rng.choice(SIZES), file.rng.choice(SIZES[:6])]
        file.rng.shuffle(shape)
        file.entries.append(['"none"', field("F32", shape, len(file.data), len(file.data))])
        return file.bytes()
    fields["shape"] = json.dumps(shape)
    if way == 5:
        odd = file.rng.choice(ODD_VALUES)
        fields["shape"] = file.rng.choice((odd, json.dumps(shape)[:-1] + (f",{odd}]" if shape else f"{odd}]")))
    return file.bytes()


def other_offsets(file):
    fields = file.some()
    begin, end = json.loads(fields["data_offsets"])
    near = file.rng.choice((-8, -4, -2, -1, 1, 2, 4, 8))
    far = file.rng.choice(SIZES)
    fields["data_offsets"] = file.rng.choice(
        [f"[{end},{begin}]", f"[{begin},{end + near}]", f"[{begin + near},{end + near}]"]
        + [f"[{begin},{far}]", f"[{far},{far}]", f"[{far},{end}]", f"[{begin},{end},{end}]", f"[{begin}]"]
        + [file.rng.choice(ODD_VALUES), f"[{begin},{file.rng.choice(ODD_VALUES)}]", f'{{"0":{begin},"1":{end}}}']
    )
    return file.bytes()


def holes_and_overlaps(file):
    file.some()
    entry = file.rng.choice(file.entries)
    begin, end = json.loads(entry[1]["data_offsets"])
    way = file.rng.randrange(4)
    if way == 0:  # the same bytes twice
        file.entries.append(['"again"', dict(entry[1])])
    elif way == 1:  # a hole, or data at the end that nobody has
        file.entries.remove(entry)
    elif way == 2:  # empty tensors anywhere
        at = file.rng.choice((begin, end, begin + 1, 0, len(file.data), len(file.data) + 1))
        file.entries.insert(0, ['"none"', field("F32", [0], at, at)])
    else:  # one more that overlaps
        at = file.rng.randint(0, len(file.data))
        file.entries.append(['"over"', field("U8", [end - begin], at, at + end - begin)])
    return file.bytes()


def other_names(file):
    file.some()
    for entry in file.entries:
        if file.rng.random() < 0.7:
            entry[0] = f'"{file.rng.choice(NAMES)}"'
    whole = file.header()
    if file.rng.random() < 0.2:
        broken = file.rng.choice((b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"))
        at = file.rng.choice([i for i, byte in enumerate(whole) if byte == ord('"')]) + 1
        whole = whole[:at] + broken + whole[at:]
    return file.bytes(whole)


def names_twice(file):
    file.some()
    name, fields = file.rng.choice(file.entries)
    way = file.rng.randrange(5)
    if way == 0:
        file.entries.append([name, fields])
    elif way == 1:
        file.entries.insert(0, [name, field("F32", [2], 0, 8)])
    elif way == 2:
        file.metadata = '{"k":"1","k":"2"}'
    elif way == 3:
        file.entries.append(['"__metadata__"', file.rng.choice(("{}", "null"))])
    else:
        key = file.rng.choice(list(fields))
        file.entries[0][1] = f'{{"{key}":{fields[key]},' + ",".join(f'"{k}":{v}' for k, v in fields.items()) + "}"
    return file.bytes()


def other_metadata(file):
    values = [*ODD_VALUES, '"v"', '"\\ud800"', '"\\u0000"', '{"a":"b"}', '["a"]', '"\U0010ffff"']
    whole = f'{{"k":{file.rng.choice(values)},"{file.rng.choice(NAMES)}":{file.rng.choice(values)}}}'
    file.metadata = file.rng.choice((whole, whole, file.rng.choice(values)))
    return file.bytes()


def other_fields(file):
    fields = file.some()
    way = file.rng.randrange(3)
    if way == 0:
        del fields[file.rng.choice(list(fields))]
    elif way == 1:
        fields[file.rng.choice(("Dtype", "extra", "", "offsets", "__metadata__"))] = file.rng.choice(ODD_VALUES)
    else:
        depth = file.rng.choice((1, 5, 60, 124, 125, 126, 127, 128, 129, 1000))
        opened, closed = file.rng.choice((("[", "]"), ('{"a":', "}")))
        fields["extra"] = opened * depth + "1" + closed * depth
    return file.bytes()


def other_spellings(file):
    file.some()
    entry = file.rng.choice(file.entries)
    dtype, shape, offsets = entry[1].values()
    entry[1] = file.rng.choice(
        [f"[{dtype},{shape},{offsets}]", f"[{dtype},{shape},{offsets},1]", f"[{dtype},{shape}]"]
        + [f"[{offsets},{shape},{dtype}]", *ODD_VALUES]
    )
    return file.bytes()


def whitespace(file):
    file.some()
    spaces = [" ", "\t", "\n", "\r", "  ", "\x0b", "\x0c", "\0", "\xa0", "\ufeff", "//", "/**/", "#"]
    likely = spaces[:5] * 5 + spaces
    text = "".join(token + file.rng.choice(likely + [""] * 9) for token in TOKEN.findall(file.text()))
    if file.rng.random() < 0.3:
        text = file.rng.choice(likely) + text
    return file.bytes(text.encode())


def other_tokens(file):
    file.some()
    tokens = TOKEN.findall(file.text())
    for _ in range(file.rng.randint(1, 2)):
        at, other = file.rng.randrange(len(tokens)), file.rng.randrange(len(tokens))
        way = file.rng.randrange(4)
        if way == 0:
            tokens[at] = file.rng.choice(WORDS)
        elif way == 1:
            tokens.insert(at, file.rng.choice((tokens[other], file.rng.choice(WORDS))))
        elif way == 2 and len(tokens) > 1:
            del tokens[at]
        else:
            tokens[at], tokens[other] = tokens[other], tokens[at]
    return file.bytes("".join(tokens).encode())


def no_header(file):
    texts = ["", "{", "}", "[]", '""', "0", "null", "{}{}", "{}x", "{,}", "{'a':1}", "{} ", " {}", "{}\0", "{}\n\n"]
    texts += ['{"a":NaN}', '{"__metadata__":{}}', '{"__metadata__":null}', '{"w":null}', "{" * 200, "[" * 200]
    file.data = file.rng.choice((b"", b"", file.data))
    return file.bytes(file.rng.choice(texts).encode())


KINDS = [unchanged, flipped_bytes, flipped_bits, cut_or_longer, length_lies, other_dtypes, other_shapes]
KINDS += [other_offsets, holes_and_overlaps, other_names, names_twice, other_metadata, other_fields]
KINDS += [other_spellings, whitespace, other_tokens, no_header]


def tree(header):
    """The JSON, every object a list of pairs, so that a name may come twice."""
    return json.loads(header, object_pairs_hook=lambda pairs: ("object", pairs))


def twice(pairs):
    return len({key for key, _ in pairs}) < len(pairs)


def fields_of(header):
    """The fields of every tensor that is an object."""
    for name, value in tree(header)[1]:
        if name != "__metadata__" and isinstance(value, tuple):
            yield dict(value[1])


def too_large(fields):
    """Elements count as LibTorch counts them: a size of zero does not excuse the others."""
    product = BITS.get(fields["dtype"], 8) if isinstance(fields["dtype"], str) else 8
    for size in fields["shape"]:
        product *= max(size, 1)
    return product >= 2**63


#: What safetensors.h says is refused though the package accepts it.
STRICTER = {
    "whitespace before the first '{'": lambda header: header[:1] != b"{",
    "a name twice": lambda header: twice(tree(header)[1])
    or any(isinstance(x, tuple) and twice(x[1]) for key, x in tree(header)[1] if key == "__metadata__"),
    "a tensor that is no object": lambda header: any(
        isinstance(x, list) for key, x in tree(header)[1] if key != "__metadata__"
    ),
    "a dtype that is no string": lambda header: any(
        isinstance(fields["dtype"], tuple) for fields in fields_of(header)
    ),
    "more than 64 dimensions": lambda header: any(len(x["shape"]) > 64 for x in fields_of(header)),
    "2^63 or more": lambda header: any(too_large(fields) for fields in fields_of(header)),
}


def package(content, folder):
    """What the package reads, as the judge tells it: (tensors with their bytes, metadata); None if it refuses."""
    try:
        tensors = safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return None
    path = folder / "file.safetensors"
    path.write_bytes(content)
    with safetensors.safe_open(path, "np") as file:
        metadata = file.metadata() or {}
    return {name: (x["dtype"], list(x["shape"]), bytes(x["data"])) for name, x in tensors}, metadata


def judged(verdict, content):
    """The same of a line of the judge."""
    if "refused" in verdict:
        return None
    tensors = {
        name: (dtype, shape, content[begin : begin + size])
        for name, dtype, shape, begin, size in verdict["tensors"]
    }
    assert len(tensors) == len(verdict["tensors"])
    return tensors, dict(verdict["metadata"])


def judge(contents):
    """The judge's lines for all files."""
    stream = b"".join(struct.pack("<Q", len(content)) + content for content in contents)
    result = subprocess.run([JUDGE], input=stream, capture_output=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


@unittest.skipUnless(JUDGE, "the judge is not here: ATTN_JUDGE names no program")
class MutatedFiles(unittest.TestCase):
    def test_get_the_verdict_of_the_package_or_a_stricter_one_that_is_documented(self):
        rng = random.Random(SEED)
        files = [(kind, kind(File(rng))) for kind in KINDS for _ in range(OF_EACH_KIND)]
        self.assertGreaterEqual(len({content for _, content in files}), 2000)
        verdicts = judge([content for _, content in files])
        self.assertEqual(len(verdicts), len(files))
        counts, reasons = Counter(), Counter()
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            for (kind, content), verdict in zip(files, verdicts):
                theirs, ours = package(content, Path(folder)), judged(verdict, content)
                with self.subTest(kind.__name__, seed=SEED, file=content[:400], verdict=verdict):
                    counts[theirs is not None] += 1
                    broken = []
                    if theirs is not None:
                        header = content[8 : 8 + struct.unpack("<Q", content[:8])[0]]
                        broken = [rule for rule, breaks in STRICTER.items() if breaks(header)]
                        reasons.update(broken)
                    self.assertEqual(ours, None if broken else theirs)
        print(f"{len(files)} files, {len({content for _, content in files})} different:", end=" ")
        print(f"the package accepts {counts[True]}; attn refuses {sum(reasons.values())} of them:", dict(reasons))
        self.assertGreater(min(counts.values()), len(files) / 10)
        self.assertEqual(set(reasons), set(STRICTER), "every documented rule occurs")


if __name__ == "__main__":
    unittest.main(verbosity=2)
