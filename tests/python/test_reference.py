#!/usr/bin/env python3
"""Holds scripts/reference.py to the documents: their own classes bit for bit, and their numbers.

The documents' classes are found through ATTN_SHARED; without it only their stored results
(tests/golden/documents.json) are compared.
"""

import importlib.util
import io
import json
import math
import os
import shutil
import sys
import types
import unittest
import warnings
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads crawl

import numpy as np
import torch

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS.parent / "scripts"))

import export_golden
import golden_case
import random_cases
import reference

DOCUMENTS = Path(os.environ.get("ATTN_SHARED") or "/nonexistent") / "cases" / "documents.py"
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
DRAWS = 200
OPEN = torch.zeros([], dtype=torch.bool)


def equal_bits(a, b):
    """Same shape, dtype and bits, the sign of zero included; NaN equals NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    word = BITS[a.element_size()]
    same = a.contiguous().view(word) == b.contiguous().view(word)
    return bool((same | (a.isnan() & b.isnan())).all())


def documents():
    """The documents' classes and functions under this library's names."""
    spec = importlib.util.spec_from_file_location("documents", DOCUMENTS)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)

    class Preprojected(loaded.S2.MultiHeadAttention):
        def forward(self, query, key, value, mask=OPEN):
            return super().forward(query, key, value, mask)

    class Einsum(loaded.S1.MultiHeadAttention):
        def forward(self, values, keys, query, mask=None):
            return super().forward(values, keys, query, mask)

    return types.SimpleNamespace(
        folder=loaded.EXT,
        XavierMultiheadAttention=loaded.S0.MultiHeadAttention,
        EinsumMultiheadAttention=Einsum,
        AttentionScore=loaded.S2.AttentionScore,
        PreprojectedMultiheadAttention=Preprojected,
        ProjectedMultiheadAttention=loaded.S2.MultiHeadAttentionProj,
        CausalMultiheadAttention=loaded.S4.MultiheadMaskedAttention,
        single_head_attention=loaded.S4.single_head_attention,
        single_head_masked_attention=loaded.S4.single_head_masked_attention,
        multihead_masked_attention=loaded.S4.multihead_masked_attention,
    )


@unittest.skipUnless(DOCUMENTS.exists(), "the documents are not here: ATTN_SHARED names no folder")
class TheDocumentsOwnClasses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.documents = documents()
        cls.addClassCleanup(shutil.rmtree, cls.documents.folder)

    def compare(self, case, tensors):
        ours = golden_case.evaluate(case, golden_case.make(case), tensors)
        theirs = golden_case.evaluate(case, golden_case.make(case, self.documents), tensors)
        self.assertEqual(list(ours), list(theirs))
        differing = [name for name in ours if not equal_bits(ours[name], theirs[name])]
        self.assertEqual(differing, [], msg=str(case))

    def test_random_cases_agree_in_every_bit(self):
        for module in random_cases.KINDS:
            with self.subTest(module):
                seen = set()
                for case, tensors in random_cases.stream(module, DRAWS, seed=2024):
                    self.compare(case, tensors)
                    seen |= {case["dtype"], case["layout"], case["mode"], "mask" in case}
                wanted = {"float32", "float64", "bfloat16", "float16", "train", "expanded", False}
                self.assertLessEqual(wanted, seen)

    def test_committed_cases_agree_in_every_bit(self):
        declared = json.loads((TESTS / "golden" / "cases.json").read_text())
        for case in declared["cases"]:
            empty = any(0 in shape for shape in case["inputs"].values())
            if empty and case["module"] == "XavierMultiheadAttention":
                continue  # its document cannot view(..., -1) an empty tensor
            with self.subTest(case["name"]):
                self.compare(case, golden_case.values(case, golden_case.make(case)))

    def test_empty_batches_queries_and_keys_agree_where_the_document_takes_them(self):
        for module, options, arguments in (
            ("EinsumMultiheadAttention", {"embed_size": 6, "num_heads": 2}, "values keys query"),
            ("AttentionScore", {}, "query key"),
            (
                "PreprojectedMultiheadAttention",
                {"embedding_dim": 6, "n_heads": 2},
                "query key value",
            ),
            ("ProjectedMultiheadAttention", {"embedding_dim": 6, "n_heads": 2}, "q h"),
            ("single_head_attention", {}, "Q K V"),
            ("single_head_masked_attention", {}, "Q K V"),
            ("multihead_masked_attention", {"num_heads": 2}, "Q K V"),
        ):
            for batch, queries, keys in ((0, 3, 5), (2, 0, 5), (2, 3, 0), (0, 0, 0)):
                case = {"module": module, "options": options, "dtype": "float32", "seed": 1}
                case["inputs"] = {
                    name: [batch, queries if name[0] in "qQ" else keys, 6]
                    for name in arguments.split()
                }
                with self.subTest(module, batch=batch, queries=queries, keys=keys):
                    callee = golden_case.make(case)
                    self.compare(case, golden_case.values(case, callee))

    def test_initial_parameters_and_the_next_random_numbers_agree(self):
        for module, (names, sizes) in export_golden.INIT_SIZES.items():
            for seed, size in enumerate(sizes):
                with self.subTest(module, size=size):
                    case = {"module": module, "options": dict(zip(names, size))}
                    drawn = []
                    for library in (reference, self.documents):
                        torch.manual_seed(seed)
                        made = golden_case.make(case, library)
                        drawn.append({**made.state_dict(), "next": torch.rand(4)})
                    ours, theirs = drawn
                    self.assertEqual(list(ours), list(theirs))
                    for name in ours:
                        self.assertTrue(equal_bits(ours[name], theirs[name]), name)


def sine(shape, a, b, dtype=torch.float64):
    """Element i is sin(a i + b), in double."""
    flat = np.sin(a * np.arange(math.prod(shape)) + b)
    return torch.from_numpy(flat.reshape(shape)).to(dtype)


def filled(module):
    """The module in float64, parameter number p holding 0.5 sin((0.37 + 0.11 p) i + 0.2 p)."""
    module = module.double().eval()
    with torch.no_grad():
        for p, parameter in enumerate(module.state_dict().values()):
            parameter.copy_(0.5 * sine(parameter.shape, 0.37 + 0.11 * p, 0.2 * p))
    return module


def stored_names_and_results():
    """What tests/golden/documents.json holds, computed by reference.py: name -> tensor."""
    tril = torch.ones(2, 3, 5, dtype=torch.bool).tril(1)
    row = tril.clone()
    row[1, 2] = False
    q, k, v = sine((2, 3, 6), 0.7, 0.1), sine((2, 5, 6), 0.9, 0.4), sine((2, 5, 6), 1.3, 0.8)
    xavier = filled(reference.XavierMultiheadAttention(6, 8, 4, 7, 2, 0.0))
    einsum = filled(reference.EinsumMultiheadAttention(6, 2))
    projected = filled(reference.ProjectedMultiheadAttention(6, 2))
    causal = filled(reference.CausalMultiheadAttention(6, 3))
    results = {}
    for name, mask in (("nomask", None), ("tril1", tril), ("rowmasked", row)):
        results[f"000_{name}_out"], results[f"000_{name}_attn"] = xavier(q, k, v, mask)
        results[f"001_{name}_out"] = einsum(v, k, q, mask if mask is None else mask[:, None])
        results[f"002P_{name}_out"] = projected(q, k, mask if mask is None else ~mask)
    results["002P_self_out"] = projected(q)
    inner = filled(reference.PreprojectedMultiheadAttention(6, 2))
    results["002M_tril1_out"] = inner(q, k, v, ~tril)
    results["002S_clip_logits"] = reference.AttentionScore(True, 10)(4 * q, k, ~tril)
    results["002S_plain_logits"] = reference.AttentionScore()(4 * q, k, ~tril)
    for L, S in ((2, 5), (5, 2)):
        Q, K, V = sine((1, L, 6), 0.7, 0.1), sine((1, S, 6), 0.9, 0.4), sine((1, S, 6), 1.3, 0.8)
        results[f"004_fn_q{L}_k{S}"] = reference.multihead_masked_attention(Q, K, V, 2)

    def gradients(prefix, module, output, leaves):
        output.backward(sine(output.shape, 0.3, 0.6))
        found = {f"{prefix}_d{name}": leaf.grad for name, leaf in leaves.items()}
        found |= {f"{prefix}_d_{name}": p.grad for name, p in module.named_parameters()}
        results.update({name: grad for name, grad in found.items() if grad is not None})

    x = sine((2, 5, 6), 0.5, 0.3).requires_grad_()
    results["004_out"] = causal(x)
    gradients("004", causal, results["004_out"], {"x": x})
    leaves = {"q": q.requires_grad_(), "k": k.requires_grad_(), "v": v.requires_grad_()}
    for prefix, module, call in (
        ("000_tril1", xavier, lambda: xavier(q, k, v, tril)[0]),
        ("001_tril1", einsum, lambda: einsum(v, k, q, tril[:, None])),
        ("002P_tril1", projected, lambda: projected(q, k, ~tril)),
    ):
        for leaf in leaves.values():
            leaf.grad = None
        gradients(prefix, module, call(), leaves)

    for prefix, make in (
        ("000", lambda: reference.XavierMultiheadAttention(6, 8, 4, 7, 2, 0.0)),
        ("001", lambda: reference.EinsumMultiheadAttention(8, 2)),
        ("002P", lambda: reference.ProjectedMultiheadAttention(8, 2)),
        ("004", lambda: reference.CausalMultiheadAttention(8, 2)),
    ):
        torch.manual_seed(0)
        for name, parameter in make().state_dict().items():
            results[f"{prefix}_init_seed0_{name}"] = parameter
    return results


class TheDocumentsNumbers(unittest.TestCase):
    def test_all_stored_tensors_are_reproduced(self):
        """Another machine adds in another order and has other exp, sin and cos.

        float64: at most eight contractions of at most 30 products, each off by 30 u (u = 2^-53)
        of its sum of magnitudes, which stays below 40: 8 * 30 * 40 u = 1e-12.
        float32 initial values: uniform ones are exact, normal ones (a logarithm, a root and a
        cosine, each good to an ulp or two) within 8 ulp of values below 2: 2^-20.
        """
        stored = json.loads((TESTS / "golden" / "documents.json").read_text())
        results = stored_names_and_results()
        self.assertEqual(len(stored), 64)
        self.assertEqual(sorted(results), sorted(stored))
        for name, entry in stored.items():
            with self.subTest(name):
                values = [math.nan if x is None else float(x) for x in entry["data"]]
                wanted = torch.tensor(values, dtype=torch.float64).reshape(entry["shape"])
                bound = 2**-20 if "_init_" in name else 1e-12
                torch.testing.assert_close(
                    results[name].detach().double(), wanted, rtol=0, atol=bound, equal_nan=True
                )

    def test_the_printed_examples_hold(self):
        """Six printed digits: half a unit of the last place, 5e-6."""
        Q = torch.tensor([[[7.0, 4, 1], [6, 3, 0], [5, 2, 1]]])
        K = torch.tensor([[[1.0, 3, 5], [2, 4, 6]]])
        V = torch.tensor([[[1.0, 0, 1], [0, 1, 0]]])
        seen = [[9.7880e-04, 9.9902e-01, 9.7880e-04], [5.5073e-03, 9.9449e-01, 5.5073e-03]]
        seen.append([9.7682e-03, 9.9023e-01, 9.7682e-03])
        masked = [[1, 0, 1], *seen[1:]]
        for output, wanted in (
            (reference.single_head_attention(Q, K, V), seen),
            (reference.single_head_masked_attention(Q, K, V), masked),
            (reference.multihead_masked_attention(Q, K, V, num_heads=1), masked),
        ):
            torch.testing.assert_close(output, torch.tensor([wanted]), rtol=0, atol=5e-6)
        x = torch.randn(64, 10, 256)
        shape = reference.EinsumMultiheadAttention(256, 8)(x, x, x, None).shape
        self.assertEqual(shape, (64, 10, 256))


class TorchScript(unittest.TestCase):
    def test_every_module_and_function_scripts_saves_and_traces_to_the_same_bits(self):
        for module in random_cases.KINDS:
            for case, tensors in random_cases.stream(module, 8, seed=7):
                case |= {"mode": "eval", "gradients": False, "layout": "contiguous"}
                with self.subTest(module, case=case):
                    self.check(case, tensors)

    def check(self, case, tensors):
        callee = golden_case.make(case)
        wanted = golden_case.evaluate(case, callee, tensors)["output"]
        arguments = golden_case.arguments_of(case, tensors, golden_case.DTYPES[case["dtype"]])
        arguments.pop("need_attn", None)
        # Tracing tells tensors apart by identity, and its own check clones them.
        arguments = {name: x.clone() for name, x in arguments.items()}
        traceable, options = callee, {}
        if not isinstance(callee, torch.nn.Module):
            traceable, options = lambda Q, K, V: callee(Q, K, V, **options), case["options"]
        archive = io.BytesIO()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.jit.save(torch.jit.script(callee), archive)
            archive.seek(0)
            scripted = torch.jit.load(archive)
            traced = torch.jit.trace(traceable, example_kwarg_inputs=arguments)
            for returned in (scripted(**arguments, **options), traced(**arguments)):
                output = returned[0] if isinstance(returned, tuple) else returned
                self.assertTrue(equal_bits(output, wanted))


if __name__ == "__main__":
    unittest.main(verbosity=2, warnings="ignore")
