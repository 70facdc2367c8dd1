"""Runs one case of tests/golden/cases.json: formula tensors, mask, memory layout, module.

The formula gives the same tensors here and in C++ (src/golden), exactly, in every dtype: small
integers from a counter-based hash, scaled by a power of two.
"""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import reference

DTYPES = {
    name: getattr(torch, name)
    for name in ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64")
}
WORD = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def fnv(text):
    """FNV-1a, 64 bits, of the UTF-8 bytes."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & WORD
    return value


def salt(name, seed):
    """What distinguishes the tensors of a case from each other and from those of other seeds."""
    return (fnv(name) + STEP * seed) & WORD


def bits(salt_value, count, first=0):
    """The 64 random bits of elements first … first+count-1: splitmix64, seekable."""
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64) * np.uint64(STEP)
    z += np.uint64(salt_value & WORD)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def formula(name, seed, shape, exponent=0):
    """Float64 tensor of integers -128 … 127 times 2^(exponent - 6)."""
    top = (bits(salt(name, seed), math.prod(shape)) >> np.uint64(56)).astype(np.int64) - 128
    return torch.from_numpy(np.ldexp(top.astype(np.float64), exponent - 6)).reshape(shape)


def signs(name, seed, shape):
    """Float64 tensor of +1 and -1."""
    odd = (bits(salt(name, seed), math.prod(shape)) & np.uint64(1)).astype(np.float64)
    return torch.from_numpy(2 * odd - 1).reshape(shape)


def parameter_exponent(shape):
    """Scales a parameter to about 1 / sqrt(fan_in), fan_in being its last dimension."""
    return -((shape[-1].bit_length() - 1) // 2)


def open_mask(spec, seed):
    """Bool tensor of the mask's shape, True where the key may be attended to."""
    shape = spec["shape"]
    kept = bits(salt("mask", seed), math.prod(shape)) & np.uint64(3)
    mask = torch.from_numpy(kept != 0).reshape(shape)
    if shape and shape[-1] > 1:
        mask[..., 0] = True
    if spec["kind"] == "tril":
        mask = torch.ones(shape, dtype=torch.bool).tril(spec.get("offset", 0))
    elif spec["kind"] == "all_blocked":
        mask = torch.zeros(shape, dtype=torch.bool)
    elif spec["kind"] == "row_blocked":
        mask.view(-1, shape[-2], shape[-1])[-1, -1] = False
    return mask


def mask_argument(case, arguments):
    """The mask as the module takes it: in its polarity, and in the reading this library keeps."""
    spec = case["mask"]
    mask = open_mask(spec, case["seed"])
    if case["module"] in ("XavierMultiheadAttention", "EinsumMultiheadAttention"):
        return mask.to(DTYPES[spec.get("dtype", "bool")])
    if case["module"] == "ProjectedMultiheadAttention" and mask.dim() == 2:
        mask = mask[:, None, :]  # keys per batch; Python alone would read queries by keys
    if case["module"] == "AttentionScore" and arguments["query"].size(-2) == 1:
        if mask.dim() > 1 and mask.shape == arguments["key"].shape[:-1]:
            mask = mask.unsqueeze(-2)  # [..., S], as the document promises for a single query
    return ~mask


def lay_out(x, layout):
    """A view that holds the values of x in the memory layout named (expanded: those of x[0])."""
    if layout == "contiguous":
        return x.contiguous()
    if layout == "transposed":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "expanded":
        return x[:1].contiguous().expand(x.shape)
    width = x.size(-1)
    factor, piece = {
        "strided": (2, slice(None, None, 2)),
        "fused": (3, slice(width, 2 * width)),
    }[layout]
    view = x.new_zeros(*x.shape[:-1], factor * width)[..., piece]
    return view.copy_(x)


def make(case, library=reference):
    """The case's module, or its function."""
    kind = getattr(library, case["module"])
    return kind(**case["options"]) if isinstance(kind, type) else kind


def values(case, callee, given=()):
    """Name -> tensor in the case's dtype for `input.*` and `param.*`; those given win."""
    dtype, seed = DTYPES[case["dtype"]], case["seed"]
    tensors = {}
    for argument, shape in case["inputs"].items():
        name, exponent = f"input.{argument}", case.get("magnitude", {}).get(argument, 0)
        tensors[name] = given[name] if name in given else formula(name, seed, shape, exponent)
    for parameter, p in callee.named_parameters() if isinstance(callee, nn.Module) else ():
        name, shape = f"param.{parameter}", tuple(p.shape)
        exponent = parameter_exponent(shape)
        tensors[name] = given[name] if name in given else formula(name, seed, shape, exponent)
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def dropout_keep(case):
    """Bool [B, H, L, S]: what dropout keeps when forward draws nothing else after the seed."""
    p, heads = case["options"]["attn_dropout"], case["options"]["n_heads"]
    queries = case["inputs"]["queries"]
    keys = case["inputs"].get("keys", queries)
    torch.set_num_threads(case.get("threads", 1))
    torch.manual_seed(case["seed"])
    ones = torch.ones(queries[0], heads, queries[1], keys[1], dtype=DTYPES[case["dtype"]])
    return functional.dropout(ones, p) != 0


class FixedDropout(nn.Module):
    """Dropout that keeps given positions, for the same mask in another dtype."""

    def __init__(self, keep, p):
        super().__init__()
        self.factor = keep.double() / (1 - p)

    def forward(self, x):
        return x * self.factor


def arguments_of(case, tensors, dtype):
    """Forward's keyword arguments; inputs are leaves with the strides of the case's layout."""
    gradients = case.get("gradients", True)
    arguments = {}
    for argument in case["inputs"]:
        x = lay_out(tensors[f"input.{argument}"].to(dtype), case.get("layout", "contiguous"))
        arguments[argument] = x.detach().requires_grad_(gradients)
    for argument, same in case.get("alias", {}).items():
        arguments[argument] = arguments[same]
    if "mask" in case:
        arguments["mask"] = mask_argument(case, arguments)
    if case.get("need_weights"):
        arguments["need_attn"] = True
    return arguments


def load(case, module, tensors, dtype):
    """Brings a module to the case's parameters, mode and dtype; returns its parameters."""
    module.to(dtype).train(case.get("mode", "eval") == "train").zero_grad()
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"param.{name}"])
    return parameters


def evaluate(case, callee, tensors, dtype=None):
    """Forward and backward of one case: name -> result, in `dtype` (default: the case's)."""
    dtype = dtype or DTYPES[case["dtype"]]
    torch.set_num_threads(case.get("threads", 1))
    arguments, parameters = arguments_of(case, tensors, dtype), {}
    if isinstance(callee, nn.Module):
        parameters = load(case, callee, tensors, dtype)
    else:
        arguments |= case["options"]

    torch.manual_seed(case["seed"])
    with torch.set_grad_enabled(case.get("gradients", True)):
        returned = callee(**arguments)
    outputs = returned if isinstance(returned, tuple) else (returned,)
    names = ("output", "weights") if case.get("need_weights") else ("output",)
    results = dict(zip(names, outputs))
    if case.get("gradients", True):
        grads = {"output": "grad_output", "weights": "grad_weights"}
        torch.autograd.backward(
            list(results.values()),
            [formula(grads[name], case["seed"], y.shape).to(dtype) for name, y in results.items()],
        )
        for name, leaf in {**{key: arguments[key] for key in case["inputs"]}, **parameters}.items():
            results[f"grad.{name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return {name: y.detach().clone() for name, y in results.items()}
