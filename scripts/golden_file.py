"""What a golden file holds: results, their float64 twins, derived tolerances; safetensors I/O."""

import json
import struct

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from golden_case import (
    DTYPES,
    FixedDropout,
    bits,
    dropout_keep,
    evaluate,
    fnv,
    make,
    signs,
    values,
)

PROJECTIONS = 64
LARGEST_STORED = 4096
DRAWS = 4
CHUNK = 1 << 14
SUMS_UNIT = 2.0**-24  # of float32, in which kernels keep scores and sums, or better
EXP_ULPS = 20
LARGEST_SCORE = 1e6
SAFETENSORS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U8": torch.uint8,
}


def compact(value):
    """JSON on one line without spaces."""
    return json.dumps(value, separators=(",", ":"))


def write(path, tensors, metadata):
    """A safetensors file, the same bytes each time (the package shuffles the metadata)."""
    names = {dtype: name for name, dtype in SAFETENSORS.items()}
    header, chunks, end = {"__metadata__": dict(sorted(metadata.items()))}, [], 0
    for key, tensor in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        data = tensor.detach().flatten().view(torch.uint8).numpy().tobytes()
        start, end = end, end + len(data)
        header[key] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
        chunks.append(data)
    text = compact(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *chunks]))
    return path


def read(path):
    """(tensors, metadata) of a safetensors file."""
    blob = path.read_bytes()
    (size,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8 : 8 + size])
    metadata, tensors = header.pop("__metadata__", {}), {}
    for key, entry in header.items():
        start, end = entry["data_offsets"]
        data = torch.tensor(np.frombuffer(blob, np.uint8, end - start, 8 + size + start))
        tensors[key] = data.view(SAFETENSORS[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def metadata(case, **more):
    """The strings that every golden file carries."""
    return {"case": compact(case), "torch": torch.__version__.split("+")[0]} | more


def project(tensors):
    """64 sums of each tensor with fixed random signs: float64 [len(tensors), 64]."""
    rows = torch.stack([t.double().flatten() for t in tensors])
    sums = rows.new_zeros(len(tensors), PROJECTIONS)
    for start in range(0, rows.size(1), CHUNK):
        piece = rows[:, start : start + CHUNK]
        sign = [
            bits(fnv("projection") + j, piece.size(1), start) & np.uint64(1)
            for j in range(PROJECTIONS)
        ]
        sums += piece @ torch.from_numpy(2.0 * np.stack(sign, 1) - 1)
    return sums


def recomputed(scores, weights, unit, seed):
    """The softmax weights as a backward pass finds them that computes them again from the scores.

    Fused kernels keep no weights but log sum exp(score), and take exp(score - that): score and sum
    are off by a rounding of the largest score of the row, and the weight by as much, relatively.
    That counts up to scores of 1e6, where little is left of the weight; beyond lie the constants of
    blocked keys, and what a kernel has to get right by other means. The exponential itself is
    LibTorch's exp_u20, good to 20 ulp.
    """
    products = torch.where(scores.abs() < LARGEST_SCORE, scores.abs(), 0.0)
    largest = products.amax(-1, keepdim=True) if scores.numel() else products
    return weights * (1 + unit * (largest + EXP_ULPS) * signs("recomputed", seed, weights.shape))


class TwoReadings(torch.autograd.Function):
    """Softmax whose backward p (dp - sum p dp) finds the first p again, and reads dp twice.

    Each reading of dp has its own rounding. Fused kernels take the row sum from the output instead
    of dp and p. Where a row has but one key with weight, both terms cancel exactly in an eager run,
    and in such a kernel only to about u |dp|.
    """

    @staticmethod
    def forward(ctx, scores, again, unit, seed):
        p = scores.softmax(-1)
        ctx.save_for_backward(p, again)
        ctx.unit, ctx.seed = unit, seed
        return p

    @staticmethod
    def backward(ctx, dp):
        p, again = ctx.saved_tensors
        first = dp + ctx.unit * dp * signs("first reading", ctx.seed, dp.shape)
        second = dp + ctx.unit * dp * signs("second reading", ctx.seed, dp.shape)
        return again * (first - (p * second).sum(-1, keepdim=True)), None, None, None


class Disturbed(TorchFunctionMode):
    """Attention's backward as fused kernels evaluate it.

    `torch.softmax` goes through TwoReadings, and the gradient of the value, in the product that
    follows, is taken with the weights that were found again.
    """

    def __init__(self, unit, seed):
        super().__init__()
        self.unit, self.seed, self.ratio = unit, seed, None

    def softmax(self, scores):
        with torch.no_grad():
            weights = scores.softmax(-1)
            again = recomputed(scores, weights, min(self.unit, SUMS_UNIT), self.seed)
            self.ratio = torch.where(weights > 0, again / weights, 1.0)
        return TwoReadings.apply(scores, again, self.unit, self.seed)

    def product(self, multiply, weights, value):
        """weights times value, the value's gradient being that of disturbed weights."""
        again, self.ratio = weights.detach() * self.ratio, None
        same = multiply(again, value)
        return multiply(weights, value.detach()) + (same - same.detach())

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.softmax:
            return self.softmax(args[0])
        if self.ratio is not None and func is torch.matmul:
            return self.product(torch.matmul, *args)
        if self.ratio is not None and func is torch.einsum:
            return self.product(lambda *pair: torch.einsum(args[0], *pair), *args[1])
        return func(*args, **kwargs)


def disturbed(case, callee, tensors, unit, draw):
    """The float64 run with inputs and parameters off by one rounding, up or down at random."""
    moved = {}
    for name, tensor in tensors.items():
        x = tensor.double()
        moved[name] = x + unit * x * signs(f"rounding.{name}", draw, x.shape)
    with Disturbed(unit, draw):
        return evaluate(case, callee, moved, torch.float64)


def largest(x, where):
    """max |x| over the positions given, 0 if there are none."""
    return x[where].abs().max().item() if where.any() else 0.0


def tolerance(eager, exact, draws, unit):
    """4 max(|eager - exact|, |disturbed - exact|, u |exact|) over the finite elements."""
    finite = exact.isfinite()
    for run in (eager, *draws):
        agree = torch.where(finite, run.isfinite(), (run == exact) | (run.isnan() & exact.isnan()))
        if not agree.all():
            raise ValueError("NaN or infinity at other positions than in float64")
    spread = max(largest(run.double() - exact, finite) for run in (eager, *draws))
    return 4 * max(spread, unit * largest(exact, finite))


def golden(case, given=(), largest_stored=LARGEST_STORED):
    """(tensors, metadata) of a case's golden file; `given` replaces formula tensors."""
    callee = make(case)
    tensors = values(case, callee, given)
    unit = torch.finfo(DTYPES[case["dtype"]]).eps / 2
    stored, bounds, projected = {}, {}, []

    eager = evaluate(case, callee, tensors)
    p = case["options"].get("attn_dropout", 0)
    if case.get("mode") == "train" and 0 < p < 1:
        keep = dropout_keep(case)
        stored["dropout_keep"] = keep.to(torch.uint8)
        callee.attn_dropout = FixedDropout(keep, p)
    exact = evaluate(case, callee, tensors, torch.float64)
    draws = [disturbed(case, callee, tensors, unit, draw) for draw in range(DRAWS)]

    for name in eager:
        runs = [run[name] for run in (eager, exact, *draws)]
        if exact[name].numel() > largest_stored:
            projected.append(name)
            if not exact[name].isfinite().all():
                raise ValueError(f"{case['name']}: {name} is too large for its NaN or infinity")
            runs = list(project(runs))
        stored[name], stored[f"f64.{name}"] = runs[0], runs[1]
        try:
            bounds[name] = tolerance(runs[0], runs[1], runs[2:], unit)
        except ValueError as error:
            raise ValueError(f"{case['name']}: {name}: {error}") from None
    return stored, metadata(case, tolerance=compact(bounds), projected=compact(projected))
