"""The documented attention modules in plain PyTorch: what the C++ library is measured against.

Every class draws the same initial parameters, in the same order and under the same names, and
computes the same bits (outputs and gradients, in every dtype) as the document that it stands for.
All of them can be traced and scripted.
Shapes: B batch, H heads, L queries, S keys, E features, D = E / H.
"""

import math
from typing import Optional, Tuple

import torch
from torch import Tensor, nn


class XavierMultiheadAttention(nn.Module):
    """Mask [B|1, L|1, S|1] is bool, True attends; blocked scores become -1e9 after scaling."""

    def __init__(self, in_dim, qk_dim, v_dim, out_dim, n_heads, attn_dropout=0.0):
        super().__init__()
        assert qk_dim % n_heads == 0, "n_heads must divide qk_dim"
        assert v_dim % n_heads == 0, "n_heads must divide v_dim"
        self.n_heads = n_heads
        self.Q = nn.Linear(in_dim, qk_dim, bias=False)
        self.K = nn.Linear(in_dim, qk_dim, bias=False)
        self.V = nn.Linear(in_dim, v_dim, bias=False)
        self.Wo = nn.Linear(v_dim, out_dim)
        self.attn_dropout = nn.Dropout(float(attn_dropout))
        std = math.sqrt(2 / (in_dim + qk_dim // n_heads))
        nn.init.normal_(self.Q.weight, std=std)
        nn.init.normal_(self.K.weight, std=std)
        nn.init.zeros_(self.Wo.bias)

    def heads(self, x: Tensor) -> Tensor:
        """[B, L, E] -> [B, H, L, D]."""
        return x.view(x.size(0), x.size(1), self.n_heads, x.size(2) // self.n_heads).transpose(1, 2)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Optional[Tensor] = None,
        need_attn: bool = False,
    ) -> Tuple[Tensor, Tensor]:
        q = self.heads(self.Q(queries))
        k = self.heads(self.K(keys))
        v = self.heads(self.V(values))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        if mask is not None:
            scores.masked_fill_(~mask.unsqueeze(1), -1e9)
        attn = self.attn_dropout(torch.softmax(scores, dim=-1))
        return self.Wo(torch.matmul(attn, v).transpose(1, 2).flatten(2)), attn


class EinsumMultiheadAttention(nn.Module):
    """One map without bias for all heads; where mask == 0 scores are -1e20, before / sqrt(E)."""

    def __init__(self, embed_size, num_heads):
        super().__init__()
        assert embed_size % num_heads == 0, "num_heads must divide embed_size"
        self.embed_size = embed_size
        self.num_heads = num_heads
        head_size = embed_size // num_heads
        self.values = nn.Linear(head_size, head_size, bias=False)
        self.keys = nn.Linear(head_size, head_size, bias=False)
        self.queries = nn.Linear(head_size, head_size, bias=False)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def heads(self, x: Tensor) -> Tensor:
        """[B, L, E] -> [B, L, H, D]."""
        return x.reshape(x.size(0), x.size(1), self.num_heads, self.embed_size // self.num_heads)

    def forward(
        self, values: Tensor, keys: Tensor, query: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        v = self.values(self.heads(values))
        k = self.keys(self.heads(keys))
        q = self.queries(self.heads(query))
        scores = torch.einsum("nqhd,nkhd->nhqk", [q, k])
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e20)
        attn = torch.softmax(scores / self.embed_size**0.5, dim=-1)
        return self.fc_out(torch.einsum("nhqk,nkhd->nqhd", [attn, v]).flatten(2))


class AttentionScore(nn.Module):
    """Logits [..., L, S] = q k^T / sqrt(D), or C tanh(that); -inf where mask is True."""

    def __init__(self, use_tanh=False, C=10):
        super().__init__()
        self.use_tanh = use_tanh
        self.C = C

    def forward(self, query: Tensor, key: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        logits = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
        if self.use_tanh:
            logits = torch.tanh(logits) * self.C
        if mask is not None:
            logits = logits.masked_fill(mask.expand_as(logits), -math.inf)
        return logits


class PreprojectedMultiheadAttention(nn.Module):
    """Attention over projected inputs; the mask broadcasts to [H, B, L, S], True blocks."""

    def __init__(self, embedding_dim, n_heads=8):
        super().__init__()
        self.n_heads = n_heads
        self.attentionScore = AttentionScore()
        self.project_out = nn.Linear(embedding_dim, embedding_dim, bias=False)

    def heads(self, x: Tensor) -> Tensor:
        """[B, L, E] -> [H, B, L, D]."""
        x = x.reshape(x.size(0), x.size(1), self.n_heads, x.size(2) // self.n_heads)
        return x.movedim(-2, 0)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None
    ) -> Tensor:
        q, k, v = self.heads(query), self.heads(key), self.heads(value)
        attn = torch.softmax(self.attentionScore(q, k, mask), dim=-1)
        return self.project_out(torch.matmul(attn, v).movedim(0, -2).flatten(-2))


class ProjectedMultiheadAttention(nn.Module):
    """In-projections without bias in front of PreprojectedMultiheadAttention; h defaults to q."""

    def __init__(self, embedding_dim, n_heads=8):
        super().__init__()
        self.queryEncoder = nn.Linear(embedding_dim, embedding_dim, bias=False)
        self.keyEncoder = nn.Linear(embedding_dim, embedding_dim, bias=False)
        self.valueEncoder = nn.Linear(embedding_dim, embedding_dim, bias=False)
        self.MHA = PreprojectedMultiheadAttention(embedding_dim, n_heads)

    def forward(
        self, q: Tensor, h: Optional[Tensor] = None, mask: Optional[Tensor] = None
    ) -> Tensor:
        if h is None:
            h = q
        return self.MHA(self.queryEncoder(q), self.keyEncoder(h), self.valueEncoder(h), mask)


def causal_softmax(scores: Tensor, head_size: int) -> Tensor:
    """Softmax of scores / sqrt(head_size) over the keys k <= q, counted from the top left."""
    q = torch.arange(scores.size(-2), device=scores.device).unsqueeze(-1)
    k = torch.arange(scores.size(-1), device=scores.device)
    return torch.softmax(scores.masked_fill(k > q, -math.inf) / math.sqrt(head_size), dim=-1)


def single_head_attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(D)) V for Q [B, L, D], K and V [B, S, D]."""
    scores = torch.einsum("bqd,bkd->bqk", [Q, K])
    attn = torch.softmax(scores / math.sqrt(Q.size(-1)), dim=-1)
    return torch.einsum("bqk,bkd->bqd", [attn, V])


def single_head_masked_attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """The same with query q seeing the keys k <= q."""
    attn = causal_softmax(torch.einsum("bqd,bkd->bqk", [Q, K]), Q.size(-1))
    return torch.einsum("bqk,bkd->bqd", [attn, V])


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, L, E] -> [B, H, L, D]."""
    return x.reshape(x.size(0), x.size(1), num_heads, x.size(2) // num_heads).transpose(1, 2)


def multihead_masked_attention(Q: Tensor, K: Tensor, V: Tensor, num_heads: int) -> Tensor:
    """Causal attention per head for Q [B, L, E], K and V [B, S, E]; heads are slices of E."""
    q, k, v = split_heads(Q, num_heads), split_heads(K, num_heads), split_heads(V, num_heads)
    attn = causal_softmax(torch.einsum("bhqd,bhkd->bhqk", [q, k]), q.size(-1))
    return torch.einsum("bhqk,bhkd->bqhd", [attn, v]).flatten(2)


class CausalMultiheadAttention(nn.Module):
    """Causal self-attention; W_QKV yields Q | K | V as thirds of its output, biases throughout."""

    def __init__(self, hidden_size, num_heads):
        super().__init__()
        assert hidden_size % num_heads == 0, "num_heads must divide hidden_size"
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.W_QKV = nn.Linear(hidden_size, 3 * hidden_size)
        self.W_O = nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.W_QKV(x)
        q = qkv.narrow(-1, 0, self.hidden_size)
        k = qkv.narrow(-1, self.hidden_size, self.hidden_size)
        v = qkv.narrow(-1, 2 * self.hidden_size, self.hidden_size)
        return self.W_O(multihead_masked_attention(q, k, v, self.num_heads))
