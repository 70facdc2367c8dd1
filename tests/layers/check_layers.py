"""Arrows go down only: checks every #include of include/, src/ and bench/ against the floor plan below.

    modules -> functional -> backend -> kernel      weights beside them; golden, bench and cli on top

Prints each line that breaks it. --self-test: checks that planted wrong includes are found, and right ones are not.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Public headers that any part may use which knows torch: the words in which the parts speak to each other.
VOCABULARY = ["attn/export.h", "attn/version.h", "attn/mask.h", "attn/backend.h", "attn/functional.h"]
TORCH = ["torch/", "ATen/", "c10/", "caffe2/"]

# Folder -> what its files may include beside headers without a folder (<vector>, <cstdint>): beginnings of the path. Of
# several folders that hold a file, the innermost counts.
ALLOWED = {
    "include/attn": ["attn/", *TORCH],
    "include/attn/modules": ["attn/modules/", *VOCABULARY, *TORCH],
    "src/kernel": ["kernel/", "hwy/"],
    "src/backend": ["backend/", "kernel/", *VOCABULARY, *TORCH],
    "src/functional": ["functional/", "backend/", *VOCABULARY, *TORCH],
    "src/modules": ["modules/", "functional/", "backend/", "attn/modules/", *VOCABULARY, *TORCH],
    "src/weights": ["weights/", "attn/weights.h", "attn/export.h", "sys/", *TORCH],
    "src/weights/formats": ["weights/formats/", "nlohmann/"],
    "src/golden": ["golden/", "weights/", "attn/", "nlohmann/", *TORCH],
    "src/bench": ["bench/", "attn/", *TORCH],
    "src/cli": ["cli/", "bench/", "golden/", "weights/formats/", "weights/recognise.h", "weights/save_format.h", "attn/", "CLI/", "fmt/", "nlohmann/", *TORCH],
    "bench": ["bench/", "benchmark/", "attn/", "sys/", *TORCH],
}
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def rule(file):
    """The folder of ALLOWED that a file, relative to the root, belongs to."""
    folders = [folder for folder in ALLOWED if file.startswith(folder + "/")]
    return max(folders, key=len, default=None)


def may_include(folder, header):
    return "/" not in header or header.startswith(tuple(ALLOWED[folder]))


def offences(file, text):
    """The lines of a file that its folder may not have."""
    folder = rule(file)
    if folder is None:
        yield f"{file}: no rule for its folder; add one to {pathlib.Path(__file__).name}"
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = INCLUDE.match(line)
        if found and not may_include(folder, found[1]):
            yield f"{file}:{number}: {folder} may not include {found[1]}"


def self_test():
    wrong = [
        ("src/kernel/exp.h", "#include <ATen/core/Tensor.h>"),
        ("src/kernel/exp.h", '#include "backend/call.h"'),
        ("src/backend/reference.cpp", '#include "functional/checks.h"'),
        ("src/functional/mask.cpp", "#include <attn/modules/causal_multihead_attention.h>"),
        ("src/functional/mask.cpp", '  #  include "modules/checks.h"'),
        ("src/weights/read.cpp", "#include <attn/functional.h>"),
        ("src/weights/formats/zip.cpp", "#include <c10/util/Exception.h>"),
        ("src/weights/formats/zip.cpp", '#include "weights/read.h"'),
        ("src/golden/run.cpp", '#include "modules/checks.h"'),
        ("src/cli/main.cpp", '#include "backend/reference.h"'),
        ("src/bench/contest.cpp", '#include "backend/reference.h"'),
        ("bench/attn_benchmark.cpp", '#include "functional/select.h"'),
        ("include/attn/weights.h", "#include <nlohmann/json.hpp>"),
        ("include/attn/weights.h", '#include "weights/read.h"'),
        ("include/attn/modules/causal_multihead_attention.h", "#include <fmt/format.h>"),
        ("src/elsewhere/file.cpp", "#include <vector>"),
    ]
    right = [
        ("src/kernel/exp.h", "#include <hwy/highway.h>"),
        ("src/backend/reference.cpp", '#include "kernel/exp.h"'),
        ("src/functional/mask.cpp", "#include <attn/functional.h>"),
        ("src/weights/formats/zip.cpp", "#include <vector>"),
        ("src/modules/checks.cpp", "#include <c10/util/Exception.h>"),
        ("src/cli/main.cpp", "#include <fmt/format.h>"),
        ("bench/attn_benchmark.cpp", '#include "bench/rows.h"'),
        ("src/kernel/exp.h", "// #include <ATen/core/Tensor.h> is what a kernel must not do"),
    ]
    missed = [f"not found: {file}: {line}" for file, line in wrong if not list(offences(file, line))]
    return missed + [f"wrongly found: {file}: {line}" for file, line in right if list(offences(file, line))]


def check_tree():
    files = [path for top in ("include", "src", "bench") for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".h", ".cpp")]
    found = [line for path in files for line in offences(path.relative_to(ROOT).as_posix(), path.read_text())]
    print(f"{len(files)} files, {len(found)} includes against the floor plan")
    return found


if __name__ == "__main__":
    problems = self_test() if "--self-test" in sys.argv else check_tree()
    print(*problems, sep="\n")
    sys.exit(bool(problems))
