#include "bench/contest.h"

#include <ATen/Context.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <attn/functional.h>
#include <attn/modules/causal_multihead_attention.h>
#include <attn/modules/projected_multihead_attention.h>

#include <cmath>

namespace attn::bench {
namespace {

/// The tensor of the row's mask: bool (true attends), or additive; undefined for kNone and kCausal.
at::Tensor mask_tensor(const Row& row) {
  switch (row.mask) {
    case MaskKind::kNone:
    case MaskKind::kCausal:
      return {};
    case MaskKind::kBool:
      return at::rand({row.L, row.S}) > 0.5;
    case MaskKind::kBoolPerHead:
      return at::rand({1, row.H, row.L, row.S}) > 0.5;
    case MaskKind::kKeyPadding:
      return at::rand({1, 1, 1, row.S}) > 0.5;
    case MaskKind::kBias:
      return at::randn({row.L, row.S}, row.dtype);
    case MaskKind::kBiasPerHead:
      return at::randn({1, row.H, row.L, row.S}, row.dtype);
  }
  return {};
}

Mask attn_mask(const Row& row, const at::Tensor& mask) {
  if (row.mask == MaskKind::kCausal) return Mask::causal();
  if (!mask.defined()) return Mask::none();
  return mask.scalar_type() == at::kBool ? Mask::attend(mask) : Mask::bias(mask);
}

/// Matmul, softmax, matmul, as one writes it in eager Python.
Call eager_attention(const Row& row, at::Tensor q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& mask) {
  const bool additive = mask.defined() && mask.scalar_type() != at::kBool;
  at::Tensor blocked;
  if (row.mask == MaskKind::kCausal) {
    blocked = at::ones({row.L, row.S}, at::kBool).triu(1);
  } else if (mask.defined() && !additive) {
    blocked = mask.logical_not();
  }
  // The queries of a group as rows of one matrix: K and V are neither repeated nor read twice.
  if (row.Hk != row.H) q = q.reshape({row.B, row.Hk, row.H / row.Hk * row.L, row.D});
  return [=, scale = 1.0 / std::sqrt(static_cast<double>(row.D)), clip = row.logit_clip,
          sizes = std::vector<int64_t>{row.B, row.H, row.L, row.Dv}] {
    at::Tensor logits = at::matmul(q, k.transpose(-2, -1)) * scale;  // [B, H, L, S]
    if (clip) logits = logits.tanh() * *clip;
    if (additive) logits = logits + mask;
    if (blocked.defined()) logits = logits.masked_fill(blocked, -INFINITY);
    return at::matmul(at::softmax(logits, -1), v).view(sizes);  // [B, H, L, Dv]
  };
}

Contest attention_contest(const Row& row) {
  const at::Tensor q = at::randn({row.B, row.H, row.L, row.D}).to(row.dtype);
  const at::Tensor k = at::randn({row.B, row.Hk, row.S, row.D}).to(row.dtype);
  const at::Tensor v = at::randn({row.B, row.Hk, row.S, row.Dv}).to(row.dtype);
  const at::Tensor mask = mask_tensor(row);
  const auto options = AttentionOptions().mask(attn_mask(row, mask)).logit_clip(row.logit_clip);

  Contest contest;
  contest.backend = attention(q, k, v, options).backend;
  contest.attn = [=] { return attention(q, k, v, options).output; };
  if (!row.logit_clip) {
    contest.sdpa = [=, causal = row.mask == MaskKind::kCausal, grouped = row.Hk != row.H] {
      const auto bias = mask.defined() ? std::optional(mask) : std::nullopt;
      return at::scaled_dot_product_attention(q, k, v, bias, 0.0, causal, std::nullopt, grouped);
    };
  }
  contest.eager = eager_attention(row, q, k, v, mask);
  return contest;
}

/// [B, T, E] → [B, H, T, D]
at::Tensor split(const at::Tensor& x, const Row& row) {
  return x.view({row.B, row.L, row.H, row.D}).transpose(1, 2);
}

/// [B, H, T, D] → [B, T, E]
at::Tensor merge(const at::Tensor& x, const Row& row) {
  return x.transpose(1, 2).reshape({row.B, row.L, row.H * row.D});
}

at::Tensor linear(const torch::nn::Linear& map, const at::Tensor& x) {
  return map->bias.defined() ? at::linear(x, map->weight, map->bias) : at::linear(x, map->weight);
}

Contest projected_contest(const Row& row) {
  ProjectedMultiheadAttention layer(
      ProjectedMultiheadAttentionOptions(row.H * row.D).n_heads(row.H));
  const at::Tensor x = at::randn({row.B, row.L, row.H * row.D});
  Contest contest;
  contest.attn = [=]() mutable { return layer(x); };
  contest.sdpa = [=] {
    const at::Tensor heads = at::scaled_dot_product_attention(
        split(linear(layer->queryEncoder, x), row), split(linear(layer->keyEncoder, x), row),
        split(linear(layer->valueEncoder, x), row));
    return linear(layer->MHA->project_out, merge(heads, row));
  };
  return contest;
}

Contest causal_contest(const Row& row) {
  CausalMultiheadAttention layer(row.H * row.D, row.H);
  const at::Tensor x = at::randn({row.B, row.L, row.H * row.D});
  Contest contest;
  contest.attn = [=]() mutable { return layer(x); };
  contest.sdpa = [=] {
    const std::vector<at::Tensor> qkv = linear(layer->W_QKV, x).chunk(3, -1);
    const at::Tensor heads = at::scaled_dot_product_attention(
        split(qkv[0], row), split(qkv[1], row), split(qkv[2], row), std::nullopt, 0.0, true);
    return linear(layer->W_O, merge(heads, row));
  };
  return contest;
}

}  // namespace

Contest make_contest(const Row& row) {
  at::manual_seed(0);
  switch (row.subject) {
    case Subject::kAttention:
      return attention_contest(row);
    case Subject::kProjectedLayer:
      return projected_contest(row);
    case Subject::kCausalLayer:
      return causal_contest(row);
  }
  return {};
}

}  // namespace attn::bench
