"""Draws random cases of every module: sizes, dtypes, layouts, masks, modes, magnitudes."""

import math
import random

import torch

import golden_case

LENGTHS = (1, 1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33)
HEAD_SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 20)
FINITE_FILL = ("XavierMultiheadAttention", "EinsumMultiheadAttention")


class Sizes:
    """B, L, S, H, D and E = H D of one case; now and then larger ones."""

    def __init__(self, rng):
        large = rng.random() < 0.1
        self.B, self.H = rng.choice((1, 1, 2, 2, 3)), rng.choice((1, 2, 2, 3, 4))
        self.L = rng.randint(1, 70) if large else rng.choice(LENGTHS)
        self.S = rng.randint(1, 70) if large else rng.choice(LENGTHS)
        self.D = 96 // self.H if large else rng.choice([d for d in HEAD_SIZES if d * self.H <= 64])
        self.E = self.H * self.D


def some(rng, *shapes):
    return list(rng.choice(shapes))


def batches(rng, B):
    """Two batch sizes of which one may be 1 and broadcast."""
    return rng.choice([(B, B), (B, B), (B, B), (1, B), (B, 1)])


def attention_inputs(rng, s, names, width=None):
    """Shapes [B, L, E] of a query and [B, S, E] of key and value, or an alias of them."""
    query, key, value = sorted(names, key=lambda name: "qkv".index(name[0].lower()))
    width = width or s.E
    inputs = {name: [s.B, s.L if name == query else s.S, width] for name in names}
    style = rng.choice(("cross", "cross", "shared", "self"))
    if style == "cross":
        return inputs, {}
    if style == "shared":
        del inputs[value]
        return inputs, {value: key}
    s.S = s.L
    return {query: [s.B, s.L, width]}, {key: query, value: query}


def xavier(rng, s):
    in_dim, v_dim, out_dim = rng.randint(1, 40), s.H * rng.choice(HEAD_SIZES), rng.randint(1, 40)
    options = {
        "in_dim": in_dim,
        "qk_dim": s.E,
        "v_dim": v_dim,
        "out_dim": out_dim,
        "n_heads": s.H,
        "attn_dropout": rng.choice((0, 0.1, 0.5, 1)),
    }
    inputs, alias = attention_inputs(rng, s, ("queries", "keys", "values"), in_dim)
    mask = some(rng, (s.B, s.L, s.S), (1, s.L, s.S), (s.B, 1, s.S), (s.B, s.L, 1), (1, 1, s.S))
    return options, inputs, alias, mask


def einsum(rng, s):
    inputs, alias = attention_inputs(rng, s, ("values", "keys", "query"))
    mask = some(
        rng,
        (s.L, s.S),
        (1, s.S),
        (s.B, 1, 1, s.S),
        (s.B, 1, s.L, s.S),
        (s.B, s.H, s.L, s.S),
        (1, s.H, 1, s.S),
    )
    return {"embed_size": s.E, "num_heads": s.H}, inputs, alias, mask


def score(rng, s):
    options = {"use_tanh": rng.random() < 0.5, "C": rng.choice((10, 50, 2.5))}
    lead = rng.choice(([], [s.B], [s.B], [s.B], [s.H, s.B]))
    inputs, alias = {"query": [*lead, s.L, s.E], "key": [*lead, s.S, s.E]}, {}
    if rng.random() < 0.2:
        inputs, alias, s.S = {"query": [*lead, s.L, s.E]}, {"key": "query"}, s.L
    elif len(lead) == 1:
        inputs["query"][0], inputs["key"][0] = batches(rng, s.B)
    masks = [(), (s.S,), (1, s.S), (s.L, s.S), (*lead, s.L, s.S), (*lead, 1, s.S)]
    if s.L == 1 and len(lead) == 1 and inputs.get("key", [0])[0] == s.B:
        masks.append((s.B, s.S))
    return options, inputs, alias, some(rng, *masks)


def heads_first_mask(rng, s):
    shapes = ((), (s.S,), (s.B, 1, s.S), (s.B, s.L, s.S), (1, s.L, s.S), (s.B, s.L, 1))
    return some(rng, *shapes, (s.H, s.B, s.L, s.S), (1, s.B, 1, s.S), (s.H, 1, 1, s.S))


def preprojected(rng, s):
    inputs, alias = attention_inputs(rng, s, ("query", "key", "value"))
    if not alias:
        inputs["query"][0], inputs["key"][0] = batches(rng, s.B)
        inputs["value"][0] = inputs["key"][0]
    return {"embedding_dim": s.E, "n_heads": s.H}, inputs, alias, heads_first_mask(rng, s)


def projected(rng, s):
    query_batch, key_batch = batches(rng, s.B)
    inputs, alias = {"q": [query_batch, s.L, s.E], "h": [key_batch, s.S, s.E]}, {}
    if rng.random() < 0.4:
        inputs, s.S = {"q": [s.B, s.L, s.E]}, s.L
        alias = {"h": "q"} if rng.random() < 0.3 else {}
    mask = some(rng, (s.B, s.S), (1, s.S)) if rng.random() < 0.2 else heads_first_mask(rng, s)
    return {"embedding_dim": s.E, "n_heads": s.H}, inputs, alias, mask


def causal(rng, s):
    return {"hidden_size": s.E, "num_heads": s.H}, {"x": [s.B, s.L, s.E]}, {}, None


def function(rng, s):
    return {}, *attention_inputs(rng, s, ("Q", "K", "V")), None


def multihead_function(rng, s):
    return {"num_heads": s.H}, *attention_inputs(rng, s, ("Q", "K", "V")), None


DRAW = {
    "XavierMultiheadAttention": xavier,
    "EinsumMultiheadAttention": einsum,
    "AttentionScore": score,
    "PreprojectedMultiheadAttention": preprojected,
    "ProjectedMultiheadAttention": projected,
    "CausalMultiheadAttention": causal,
    "single_head_attention": function,
    "single_head_masked_attention": function,
    "multihead_masked_attention": multihead_function,
}
KINDS = tuple(DRAW)


def draw_mask(rng, module, shape):
    kinds = ["random"] * 6 + ["all_blocked"]
    if len(shape) >= 2:
        kinds += ["tril", "tril", "row_blocked", "row_blocked"]
    mask = {"kind": rng.choice(kinds), "shape": shape}
    if module == "EinsumMultiheadAttention":
        mask["dtype"] = rng.choice(("bool", "int64", "float32"))
    if mask["kind"] == "tril":
        mask["offset"] = rng.choice((0, 0, 1, -1))
    return mask


def draw(module, rng, name):
    """A random case of one module."""
    options, inputs, alias, mask_shape = DRAW[module](rng, Sizes(rng))
    dtype = rng.choice(("float32", "float32", "float64", "bfloat16", "float16"))
    case = {"name": name, "module": module, "options": options, "dtype": dtype, "inputs": inputs}
    if alias:
        case["alias"] = alias
    case["layout"] = rng.choice(
        ("contiguous", "contiguous", "transposed", "strided", "fused", "expanded")
    )
    # Python refuses -1e9 and -1e20 in float16.
    masked = mask_shape is not None and not (dtype == "float16" and module in FINITE_FILL)
    if masked and rng.random() < 0.7:
        case["mask"] = draw_mask(rng, module, mask_shape)
    if module == "XavierMultiheadAttention":
        case["need_weights"] = rng.random() < 0.5
    case["mode"] = rng.choice(("train", "eval"))
    case["seed"] = rng.randrange(1 << 31)
    case["gradients"] = rng.random() < 0.9
    case["threads"] = rng.choice((1, 1, 1, 2))
    return case


def draw_values(case, callee, rng):
    """Normal `input.*` and `param.*` tensors for a case, in its dtype."""
    dtype = golden_case.DTYPES[case["dtype"]]
    generator = torch.Generator().manual_seed(rng.randrange(1 << 31))
    tensors = {}
    for argument, shape in case["inputs"].items():
        scale = 2.0 ** rng.choice((-2, 0, 0, 1) if dtype == torch.float16 else (-2, 0, 0, 2, 5))
        tensors[f"input.{argument}"] = scale * torch.randn(shape, generator=generator)
    if isinstance(callee, torch.nn.Module):
        for name, p in callee.named_parameters():
            scale = 1 / math.sqrt(p.size(-1))
            tensors[f"param.{name}"] = scale * torch.randn(p.shape, generator=generator)
    return {name: tensor.to(dtype) for name, tensor in tensors.items()}


def stream(module, count, seed):
    """`count` pairs of a random case and its values."""
    rng = random.Random(f"{seed} {module}")
    for number in range(count):
        case = draw(module, rng, f"{number:03d}")
        yield case, draw_values(case, golden_case.make(case), rng)
