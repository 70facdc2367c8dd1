#!/usr/bin/env python3
"""Weight files from Python to attn and back, bit for bit: what Python wrote, and what Python reads."""

import argparse
import collections
import io
import json
import sys
import unittest
import zipfile
from pathlib import Path

from weight_files import BAD_INPUT, WeightFiles, attn, bits  # first: it prepares for torch

import numpy as np
import safetensors.torch
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))

import reference

NUMPY = "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 float32 float64 complex64 complex128"
SMALL_FLOATS = "bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
EVERY_DTYPE = [*NUMPY.split(), *SMALL_FLOATS.split(), "complex32"]
#: What a format lacks.
SAFETENSORS_LACKS = {"complex32", "complex128"}
#: They had no class of storages.
LEGACY_LACKS = {"uint16", "uint32", "uint64", "complex32", *SMALL_FLOATS.split()[1:]}


def random_bits(dtype, *shape, seed=0):
    """Any bits, among them NaN with payloads and subnormal numbers."""
    generator = torch.Generator().manual_seed(seed)
    element = torch.empty([], dtype=dtype).element_size()
    count = torch.Size(shape).numel() * element
    content = torch.randint(2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8, generator=generator)
    return content.view(dtype).reshape(shape)


def of_every_dtype(lacking=()):
    """Two tensors and an empty one of each dtype."""
    tensors = {}
    for seed, name in enumerate(name for name in EVERY_DTYPE if name not in lacking):
        dtype = getattr(torch, name)
        tensors[f"of_{name}.matrix"] = random_bits(dtype, 3, 5, seed=seed)
        tensors[f"of_{name}.scalar"] = random_bits(dtype, seed=seed + 1000)
        tensors[f"of_{name}.empty"] = torch.empty((0, 3), dtype=dtype)
    return tensors


class Holder(nn.Module):
    """Parameters and buffers under the names of `tensors`, whose dots make submodules."""

    def __init__(self, tensors):
        super().__init__()
        for name, tensor in tensors.items():
            *parents, last = name.split(".")
            place = self
            for parent in parents:
                if parent not in dict(place.named_children()):
                    place.add_module(parent, Holder({}))
                place = place.get_submodule(parent)
            if tensor.is_floating_point() and tensor.dtype.itemsize >= 2:
                place.register_parameter(last, nn.Parameter(tensor))
            else:
                place.register_buffer(last, tensor)

    def forward(self, x: torch.Tensor):
        return x + 1


class Doubled(nn.Module):
    """A parameter under two names, a buffer that is a view of another one, and one that is not kept."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = self.first
        self.other = nn.Linear(3, 3)
        self.other.weight = self.first.weight
        self.register_buffer("table", torch.arange(12.0).reshape(3, 4))
        self.register_buffer("row", self.table[1])
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.second(x) + self.other(x) + self.table.sum() + self.row.sum() + self.scratch.sum()


def big_endian(path, tensors):
    """Makes the archive that a big-endian machine would have saved."""
    with zipfile.ZipFile(path) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    sizes = {}
    for number, tensor in enumerate(tensors.values()):
        sizes[str(number)] = tensor.element_size() // (2 if tensor.is_complex() else 1)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in records.items():
            last = name.rsplit("/", 1)[-1]
            if name.endswith("/byteorder"):
                content = b"big"
            elif "/data/" in name:
                number = np.frombuffer(content, np.uint8).reshape(-1, sizes[last])
                content = number[:, ::-1].tobytes()
            archive.writestr(name, content)


class WhatTorchSaves(WeightFiles):
    def saved(self, value, **options):
        path = self.folder / "saved.pt"
        torch.save(value, path, **options)
        return path

    def test_every_dtype_with_every_protocol_and_checksums_or_none(self):
        tensors = of_every_dtype()
        for protocol in (2, 3, 4, 5):
            path = self.saved(tensors, pickle_protocol=protocol)
            self.assert_same(self.converted(path, ".pt"), tensors)
        torch.serialization.set_crc32_options(False)
        self.addCleanup(torch.serialization.set_crc32_options, True)
        self.assert_same(self.converted(self.saved(tensors), ".pt"), tensors)

    def test_the_format_before_1_6(self):
        tensors = of_every_dtype(LEGACY_LACKS)
        for protocol in (2, 4):
            path = self.saved(tensors, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
            self.assert_same(self.converted(path, ".pt"), tensors)

    def test_a_big_endian_machine(self):
        tensors = {k: x for k, x in of_every_dtype().items() if not k.endswith("empty")}
        path = self.saved(tensors)
        big_endian(path, tensors)
        # This is the file that we meant to make, though PyTorch forgets the order of newer dtypes.
        typed = {name: x for name, x in torch.load(path).items() if name.split(".")[0][3:] not in LEGACY_LACKS}
        self.assert_same(typed, {name: tensors[name] for name in typed})
        self.assert_same(self.converted(path, ".pt"), tensors)

    def test_views_keep_their_place_and_share_what_they_shared(self):
        base = random_bits(torch.float32, 4, 6)
        tensors = {"base": base, "tied": base, "transposed": base.t(), "stepped": base[:, 1::2]}
        tensors |= {"expanded": base[0].expand(3, 6), "offset": base.flatten()[7:20], "element": base[2, 3]}
        tensors |= {"overlapping": base.as_strided((3, 4), (2, 1), 5), "none": base[4:], "parameter": nn.Parameter(base)}
        tensors |= {"alone": base.clone()}
        for options in ({}, {"_use_new_zipfile_serialization": False}):
            path = self.saved(tensors, **options)
            read = self.converted(path, ".pt")
            self.assert_same(read, tensors)
            alone = {"alone"}
            shared = {name for name in read if read[name].untyped_storage().data_ptr() == read["base"].untyped_storage().data_ptr()}
            self.assertEqual(shared | {"none"}, set(tensors) - alone)
            for name in ("transposed", "expanded", "stepped", "overlapping"):
                self.assertEqual(read[name].stride(), tensors[name].stride(), name)
            read["base"][2, 3] = 42
            self.assertEqual(read["element"], 42)
            copies = self.converted(path, ".safetensors")
            self.assert_same(copies, tensors, in_order=False)
            copies["base"].zero_()
            self.assertEqual(bits(copies["tied"]), bits(base))

    def test_a_small_view_of_a_large_storage_takes_little(self):
        path = self.saved({"row": torch.zeros(1 << 18)[5:9]})
        for suffix in (".pt", ".safetensors", ".npz"):
            self.assertLess(self.convert(path, suffix).stat().st_size, 3000)

    def test_conjugate_and_negative_views_are_refused(self):
        """Their numbers are not those in memory."""
        z = torch.tensor([1 + 2j, 3 - 1j, -2j, 5])
        for view, word in ((z.conj(), '"conj"'), (z.conj().imag, '"neg"')):
            self.assertTrue(view.is_conj() or view.is_neg())
            self.refused(self.saved({"w": view}), word)

    def test_a_checkpoint_of_a_trainer(self):
        model = reference.CausalMultiheadAttention(8, 2)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(2, 3, 8)).sum().backward()
        optimizer.step()
        checkpoint = {
            "epoch": 3,
            "global_step": 10**12,
            "pytorch-lightning_version": "2.4.0",
            "state_dict": model.state_dict(),
            "optimizer_states": [optimizer.state_dict()],
            "lr_schedulers": [{"last": 0.5, "milestones": collections.Counter({3: 1})}],
            "callbacks": {"EarlyStopping{'monitor': 'loss'}": {"best": torch.tensor(0.25), "wait": 0}},
            "hyper_parameters": argparse.Namespace(lr=1e-3, name="größer", sizes=[1, 2], device=torch.device("cuda", 1)),
            "rest": [None, True, 1.5, (1, b"\x00\xff"), {1, 2}, torch.Size([2, 3]), torch.bfloat16, torch.strided],
            "numbers": {"best": np.float64(0.5), "seen": np.int64(7), "curve": np.arange(3.0)},
        }
        path = self.saved(checkpoint)
        self.assert_same(self.converted(path, ".pt", "--prefix", "state_dict."), model.state_dict())
        everything = self.converted(path, ".pt")
        self.assertEqual(bits(everything["callbacks.EarlyStopping{'monitor': 'loss'}.best"]), bits(torch.tensor(0.25)))
        for number, parameter in enumerate(model.parameters()):
            moment = optimizer.state[parameter]["exp_avg"]
            self.assertEqual(bits(everything[f"optimizer_states.0.state.{number}.exp_avg"]), bits(moment))

    def test_nested_containers_flatten_with_dots(self):
        x, y, z = (random_bits(torch.float64, 2, seed=seed) for seed in range(3))
        nested = {"a": {"b": x, 3: y}, "list": [x, (y, {"deep": z})], "": z, "empty": {}}
        nested["ordered"] = collections.OrderedDict(w=z)
        wanted = {"a.b": x, "a.3": y, "list.0": x, "list.1.0": y, "list.1.1.deep": z, "": z, "ordered.w": z}
        self.assert_same(self.converted(self.saved(nested), ".npz"), wanted)
        self.assert_same(self.converted(self.saved(random_bits(torch.int16, 2, 2)), ".npy"), {"": random_bits(torch.int16, 2, 2)})

    def test_refuses_by_name_what_is_no_plain_tensor_and_keeps_it_inert_on_request(self):
        sparse = torch.eye(3).to_sparse()
        quantized = torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8)
        meta = torch.empty(3, device="meta")
        for value, word in ((nn.Linear(2, 2), "torch.nn.modules.linear.Linear"), (sparse, "sparse")) + (
            (quantized, "_rebuild_qtensor"),
            (meta, "_rebuild_meta_tensor"),
            (collections.namedtuple, "namedtuple"),
        ):
            with self.subTest(word):
                self.refused(self.saved({"fine": torch.ones(2), "odd": value}), word)
        path = self.saved({"fine": torch.ones(2), "odd": nn.Linear(2, 2)})
        self.assertEqual(bits(self.converted(path, ".pt", "--opaque")["fine"]), bits(torch.ones(2)))


#: Any UTF-8; the last two are long.
NAMES = ["w", "a.b", "a..b", ".a", "a.", ".", "emoji 😀🏳️‍🌈", "é", "e\u0301", "ﬁ", "日本.語", "עברית", "\u202e"]
NAMES += ['"', "'", "\\", "\\n", "\n", "\t\r", "/", "../x", "a/b", "{}[]:,", " ", "\x7f", "\x01", "\ufeff", "\U0010ffff"]
NAMES += ["__proto__", "data.pkl", "byteorder", "x" * 300, "😀" * 1000]


class Names(WeightFiles):
    def test_of_any_utf8_stay_what_they_are(self):
        tensors = {name: torch.tensor([number]) for number, name in enumerate(NAMES)}
        saved = self.folder / "saved.pt"
        torch.save(tensors, saved)
        self.assert_same(self.converted(saved, ".pt"), tensors)
        # Sorted by the package: the data's order is that of the names.
        written = self.folder / "written.safetensors"
        safetensors.torch.save_file(tensors, written)
        self.assert_same(self.converted(written, ".safetensors"), tensors, in_order=False)
        self.assert_same(self.converted(self.convert(saved, ".safetensors"), ".pt"), tensors, in_order=False)
        self.assert_same(self.converted(saved, ".npz"), tensors)

    def test_that_are_empty_or_metadata_go_where_they_can(self):
        tensors = {"": torch.ones(1), "__metadata__": torch.zeros(2)}
        saved = self.folder / "saved.pt"
        torch.save(tensors, saved)
        self.assert_same(self.converted(saved, ".pt"), tensors)


class WhatSafetensorsSaves(WeightFiles):
    def test_every_dtype_and_the_metadata(self):
        tensors = of_every_dtype(SAFETENSORS_LACKS)
        path = self.folder / "written.safetensors"
        metadata = {"format": "pt", "größe": '"{}"\n', "": ""}
        safetensors.torch.save_file(tensors, path, metadata)
        self.assert_same(self.converted(path, ".pt"), tensors, in_order=False)
        copied = self.convert(path, ".safetensors")
        self.assert_same(safetensors.torch.load_file(copied), tensors, in_order=False)
        with safetensors.safe_open(copied, "pt") as file:
            self.assertEqual(file.metadata(), metadata)

    def test_pairs_of_four_bits(self):
        tensors = {"w": random_bits(torch.float4_e2m1fn_x2, 3, 5), "none": torch.empty((0, 2), dtype=torch.float4_e2m1fn_x2)}
        path = self.folder / "written.safetensors"
        safetensors.torch.save_file(tensors, path)
        self.assert_same(self.converted(path, ".safetensors"), tensors, in_order=False)
        torch.save(tensors, self.folder / "saved.pt")
        self.refused(self.folder / "saved.pt", "float4_e2m1fn_x2")

    def test_no_tensors(self):
        path = self.folder / "written.safetensors"
        safetensors.torch.save_file({}, path)
        for suffix in (".pt", ".safetensors", ".npz", ".ts"):
            self.assertEqual(dict(self.converted(path, suffix)), {})


class WhatNumPySaves(WeightFiles):
    def arrays(self):
        arrays = {name: x.numpy() for name, x in of_every_dtype([*SMALL_FLOATS.split(), "complex32"]).items()}
        fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
        swapped = {f"swapped.{code}": np.arange(6).reshape(2, 3).astype(f">{code}") for code in ("i2", "f4", "c16", "u8")}
        return arrays | swapped | {"fortran": fortran, "view": fortran[::2, 1:], "long" * 50: np.zeros((1, 0, 2), "<f2")}

    def test_archives_plain_and_compressed(self):
        arrays = self.arrays()
        wanted = {name: torch.from_numpy(x.astype(x.dtype.newbyteorder("="))) for name, x in arrays.items()}
        path = self.folder / "saved.npz"
        for save in (np.savez, np.savez_compressed):
            save(path, **arrays)
            self.assert_same(self.converted(path, ".pt"), wanted)
        self.assert_same(self.converted(path, ".npz"), wanted)
        lacking = {name: x for name, x in wanted.items() if x.dtype != torch.complex128}
        np.savez_compressed(path, **{name: arrays[name] for name in lacking})
        self.assert_same(self.converted(path, ".safetensors"), lacking, in_order=False)

    def test_single_arrays_of_every_version_of_the_format(self):
        path = self.folder / "saved.npy"
        array = np.asfortranarray(np.arange(6, dtype=">f8").reshape(2, 3))
        for version in ((1, 0), (2, 0), (3, 0)):
            with path.open("wb") as file:
                np.lib.format.write_array(file, array, version=version)
            self.assert_same(self.converted(path, ".npy"), {"": torch.arange(6.0, dtype=torch.float64).reshape(2, 3)})

    def test_refuses_what_is_no_array_of_numbers(self):
        path = self.folder / "saved.npy"
        for array in (np.array([{}], object), np.array(["text"]), np.zeros(2, [("a", "f4")]), np.array("2020", "M8[D]")):
            np.save(path, array, allow_pickle=True)
            with self.subTest(array.dtype):
                self.refused(path)


class WhatIsCompiled(WeightFiles):
    def test_scripted_and_traced_modules_of_every_dtype(self):
        holder = Holder(of_every_dtype({"uint32", "uint64", "complex32"}))
        path = self.folder / "compiled.ts"
        for compiled in (torch.jit.script(holder), torch.jit.trace(holder, torch.ones(1), check_trace=False)):
            compiled.save(path)
            self.assert_same(self.converted(path, ".pt"), holder.state_dict())

    def test_tied_parameters_views_and_buffers_that_are_not_kept(self):
        path, module = self.folder / "compiled.ts", Doubled()
        torch.jit.script(module).save(path)
        loaded = torch.jit.load(path).state_dict()
        read = self.converted(path, ".pt")
        self.assert_same(read, loaded)
        self.assertEqual(read["first.weight"].data_ptr(), read["other.weight"].data_ptr())
        program = torch.export.export(module, (torch.ones(2, 3),))
        torch.export.save(program, self.folder / "exported.pt2")
        read = self.converted(self.folder / "exported.pt2", ".pt")
        self.assert_same(read, program.state_dict, in_order=False)

    def test_exported_programs(self):
        lacking = {"uint16", "uint32", "uint64", "complex32", "complex128", *SMALL_FLOATS.split()[1:]}
        holder = Holder({name: x for name, x in of_every_dtype(lacking).items() if not name.endswith("empty")})
        program = torch.export.export(holder, (torch.ones(1),))
        torch.export.save(program, self.folder / "exported.pt2")
        self.assert_same(self.converted(self.folder / "exported.pt2", ".pt"), program.state_dict, in_order=False)

    def test_a_package_of_the_documents_modules(self):
        module = reference.ProjectedMultiheadAttention(8, 2)
        torch.jit.script(module).save(self.folder / "module.ts")
        torch.export.save(torch.export.export(module, (torch.ones(1, 3, 8),)), self.folder / "module.pt2")
        for name in ("module.ts", "module.pt2"):
            self.assert_same(self.converted(self.folder / name, ".pt"), module.state_dict())


class Shards(WeightFiles):
    def test_of_hugging_face(self):
        tensors = {f"layer.{i}.weight": random_bits(torch.bfloat16, 3, 4, seed=i) for i in range(5)}
        parts = [dict(list(tensors.items())[:2]), dict(list(tensors.items())[2:])]
        for stem, suffix, save in (
            ("model", "safetensors", safetensors.torch.save_file),
            ("pytorch_model", "bin", torch.save),
        ):
            places = {}
            for number, part in enumerate(parts, 1):
                file = f"{stem}-{number:05d}-of-00002.{suffix}"
                save(part, self.folder / file)
                places |= {name: file for name in part}
            index = self.folder / f"{stem}.{suffix}.index.json"
            index.write_text(json.dumps({"metadata": {"total_size": 120}, "weight_map": places}))
            self.assert_same(self.converted(index, ".pt"), tensors, in_order=False)
            self.assert_same(self.converted(index, ".safetensors"), tensors, in_order=False)


MODULES = {
    "xavier": lambda: reference.XavierMultiheadAttention(6, 8, 4, 7, 2),
    "einsum": lambda: reference.EinsumMultiheadAttention(8, 2),
    "projected": lambda: reference.ProjectedMultiheadAttention(8, 2),
    "causal": lambda: reference.CausalMultiheadAttention(8, 2),
}


class WhatAttnWrites(WeightFiles):
    def test_loads_strictly_into_the_documents_modules(self):
        for seed, make in enumerate(MODULES.values()):
            torch.manual_seed(seed)
            module, other = make(), make()
            path = self.folder / "saved.pt"
            torch.save(module.state_dict(), path)
            read = self.converted(path, ".pt")
            self.assertIs(type(read), collections.OrderedDict)
            other.load_state_dict(read, strict=True)
            self.assert_same(other.state_dict(), module.state_dict())

    def test_is_read_by_every_way_that_python_has(self):
        """Mapped, without weights_only, through a file object; the archive's own checksums are right."""
        tensors = of_every_dtype()
        source = self.folder / "saved.pt"
        torch.save(tensors, source)
        path = self.convert(source, ".pt")
        self.assert_same(torch.load(path, weights_only=True, mmap=True), tensors)
        self.assert_same(torch.load(path, weights_only=False), tensors)
        self.assert_same(torch.load(io.BytesIO(path.read_bytes())), tensors)
        with zipfile.ZipFile(path) as archive:
            self.assertIsNone(archive.testzip())
            for info in archive.infolist():
                if "/data/" in info.filename:
                    begin = info.header_offset + 30 + int.from_bytes(
                        path.read_bytes()[info.header_offset + 28 : info.header_offset + 30], "little"
                    ) + len(info.filename)
                    self.assertEqual(begin % 64, 0, info.filename)

    def test_goes_through_every_format_and_back(self):
        lacking = {*SMALL_FLOATS.split(), "complex32", "complex128", "uint32", "uint64"}
        tensors = of_every_dtype(lacking)
        path = self.folder / "saved.pt"
        torch.save(tensors, path)
        for number, suffix in enumerate((".safetensors", ".npz", ".ts", ".pt")):
            self.assert_same(self.converted(path, suffix), tensors, in_order=False)
            moved = self.folder / f"step{number}{suffix}"
            (self.folder / f"converted{suffix}").rename(moved)
            path = moved
        self.assert_same(torch.load(path), tensors, in_order=False)

    def test_reads_each_of_its_dtypes_in_safetensors_npz_and_torchscript(self):
        path = self.folder / "saved.pt"
        for suffix, lacking in (
            (".safetensors", SAFETENSORS_LACKS),
            (".npz", {*SMALL_FLOATS.split(), "complex32"}),
            (".ts", {"uint32", "uint64"}),
        ):
            tensors = of_every_dtype(lacking)
            torch.save(tensors, path)
            self.assert_same(self.converted(path, suffix), tensors, in_order=False)

    def test_refuses_a_dtype_that_the_format_lacks_and_leaves_the_old_file(self):
        source = self.folder / "saved.pt"
        for suffix, dtype in ((".safetensors", torch.complex128), (".npz", torch.bfloat16), (".npy", torch.bfloat16)):
            tensors = {"odd": torch.ones(2, dtype=dtype)}
            torch.save(tensors if suffix == ".npy" else {"good": torch.ones(2)} | tensors, source)
            target = self.folder / f"old{suffix}"
            target.write_bytes(b"old")
            result = attn("convert", source, target, "--quiet")
            self.assertEqual(result.returncode, BAD_INPUT, result)
            for word in ('"odd"', str(dtype).removeprefix("torch.")):
                self.assertIn(word, result.stderr)
            self.assertEqual(target.read_bytes(), b"old")
            target.unlink()
            self.assertEqual(list(self.folder.iterdir()), [source], "no temporary file is left")


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
