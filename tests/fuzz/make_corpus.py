"""Writes tests/fuzz/corpus anew: small valid files, one folder for each fuzzer, from which it starts."""

import io
import json
import pathlib
import pickle
import shutil
import struct
import warnings
import zipfile
from collections import OrderedDict

import numpy
import torch

CORPUS = pathlib.Path(__file__).parent / "corpus"


def torch_file(value, **options):
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def small_values():
    base = torch.arange(6.0)
    yield "state_dict", OrderedDict(w=torch.ones(2, 3), b=torch.nn.Parameter(torch.zeros(3, dtype=torch.float16)))
    yield "views", {"a": base[1:3], "b": base.reshape(2, 3).t(), "c": base.expand(2, 6)}
    yield "training", {"epoch": 3, "lr": 0.5, "model": {"w": base}, "args": [None, True, (1, "x", b"y"), {2}], "size": torch.Size([2])}
    yield "numpy", {"loss": numpy.float64(0.5), "dtype": torch.float32, "device": torch.device("cpu"), "big": 1 << 80}


def zip_file(write, **options):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        write(archive)
    return file.getvalue()


class Stream:
    """A file that cannot seek: sizes and checksums follow the bytes."""

    def __init__(self):
        self.bytes = b""

    def write(self, data):
        self.bytes += data
        return len(data)

    def flush(self):
        pass


def streamed(write):
    stream = Stream()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        write(archive)
    return stream.bytes


def zips():
    def two(archive):
        archive.writestr("folder/", b"")
        archive.writestr("a", b"attention " * 9)
        archive.writestr("é", b"")

    def zip64(archive):
        with archive.open("large", "w", force_zip64=True) as record:
            record.write(b"abc")

    yield "stored", zip_file(two)
    yield "deflated", zip_file(two, compression=zipfile.ZIP_DEFLATED)
    yield "streamed", streamed(two)
    yield "zip64", zip_file(zip64)
    yield "empty", zip_file(lambda archive: None)
    yield "torch", torch_file({"w": torch.ones(2)})
    torch.serialization.set_crc32_options(False)
    yield "torch_without_checksums", torch_file({"w": torch.ones(2)})
    torch.serialization.set_crc32_options(True)
    for name, save in ("npz", numpy.savez), ("npz_deflated", numpy.savez_compressed):
        file = io.BytesIO()
        save(file, w=numpy.ones((2, 3), "f4"), b=numpy.zeros(2, ">i2"))
        yield name, file.getvalue()


def npy(array, version):
    file = io.BytesIO()
    numpy.lib.format.write_array(file, array, version=version)
    return file.getvalue()


def npys():
    yield "float", npy(numpy.ones((2, 3), "<f4"), (1, 0))
    yield "fortran", npy(numpy.asfortranarray(numpy.ones((2, 3), "<c16")), (2, 0))
    yield "swapped", npy(numpy.arange(3, dtype=">i8"), (3, 0))
    yield "scalar", npy(numpy.array(True), (1, 0))
    yield "zero_size", npy(numpy.zeros((2, 0), "u2"), (1, 0))
    yield "structured", npy(numpy.zeros(2, [("a", "f4"), ("b", "U2")]), (1, 0))
    text = b"{'shape': (3L,), 'fortran_order': False, 'descr': \"|u1\"}\n"
    yield "python2", b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + b"123"


def safetensors():
    def file(header, data):
        text = json.dumps(header, separators=(",", ":")).encode()
        return struct.pack("<Q", len(text)) + text + data

    tensor = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    yield "one", file({"w": tensor}, bytes(16))
    yield "metadata", file({"__metadata__": {"format": "pt", "é": "{\"x\": []}"}, "w": tensor}, bytes(16))
    yield "types", file({"a": {"dtype": "BF16", "shape": [], "data_offsets": [4, 6]}, "b": {"dtype": "U8", "shape": [0, 9], "data_offsets": [0, 0]},
                         "c": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4], "more": [{"x": None}, 1.5e3, True]}}, bytes(6))
    yield "none", file({}, b"")


def shard_indices():
    files = {"a.weight": "model-00001-of-00002.safetensors", "a.bias": "model-00002-of-00002.safetensors", "é": "model-00001-of-00002.safetensors"}
    yield "two", json.dumps({"metadata": {"total_size": 64}, "weight_map": files}, indent=2).encode()
    yield "none", b'{"weight_map":{}}'


def records(archive):
    """The input of archive_fuzz: each record as length of the name, length of its bytes, name, bytes."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        for info in file.infolist():
            name, data = info.filename.encode(), file.read(info)
            if "debug_pkl" not in info.filename and len(data) < 1 << 16:
                yield struct.pack("<BH", len(name), len(data)) + name + data


def archives():
    for name, value in small_values():
        yield name, torch_file(value)
    layer = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
    for name, module in ("scripted", torch.jit.script(layer[0])), ("traced", torch.jit.trace(layer.eval(), torch.ones(1, 2))):
        file = io.BytesIO()
        torch.jit.save(module, file)
        yield name, file.getvalue()
    file = io.BytesIO()
    torch.export.save(torch.export.export(layer[0], (torch.ones(1, 2),)), file)
    yield "exported", file.getvalue()
    yield from ((name, data) for name, data in zips() if name.startswith("npz"))


def pickles():
    for name, value in small_values():
        yield name, zipfile.ZipFile(io.BytesIO(torch_file(value))).read("archive/data.pkl")
        yield name + "_legacy", torch_file(value, _use_new_zipfile_serialization=False)
    values = [[], {}, (), {"a": [1, -1, 300, 70000, 1 << 40, 1.5, None, True, "é", b"\xff"]}, {(1,): {2}}, frozenset([1]), complex(1, 2), print]
    values[0].append(values[0])
    for protocol in range(6):
        yield f"protocol{protocol}", pickle.dumps(values, protocol)


def main():
    warnings.simplefilter("ignore")
    shutil.rmtree(CORPUS, ignore_errors=True)
    folders = {
        "zip_directory": zips(),
        "npy_header": npys(),
        "safetensors_header": safetensors(),
        "shard_index": shard_indices(),
        "state_dict": pickles(),
        "archive": ((name, b"".join(records(data))) for name, data in archives()),
    }
    for folder, files in folders.items():
        (CORPUS / folder).mkdir(parents=True)
        for name, data in files:
            (CORPUS / folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
