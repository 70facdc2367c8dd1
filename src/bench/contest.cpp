#include "bench/contest.h"

#include <ATen/Context.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <attn/functional.h>
#include <attn/modules/causal_multihead_attention.h>
#include <attn/modules/projected_multihead_attention.h>

#include <functional>
#include <memory>
#include <vector>

#include "bench/eager.h"

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

Contest attention_contest(const Row& row) {
  const at::Tensor q = at::randn({row.B, row.H, row.L, row.D}).to(row.dtype);
  const at::Tensor k = at::randn({row.B, row.Hk, row.S, row.D}).to(row.dtype);
  const at::Tensor v = at::randn({row.B, row.Hk, row.S, row.Dv}).to(row.dtype);
  const at::Tensor mask = mask_tensor(row);
  std::vector<at::Tensor> inputs = {q, k, v};
  if (mask.defined() && mask.is_floating_point()) inputs.push_back(mask);
  const Leaves leaves = make_leaves(row.pass, inputs, {row.B, row.H, row.L, row.Dv});
  const auto options = AttentionOptions()
                           .mask(attn_mask(row, mask))
                           .logit_clip(row.logit_clip)
                           .dropout_p(row.dropout_p);

  Contest contest;
  contest.backend = attention(q, k, v, options).backend;
  const auto attn = [=] { return attention(q, k, v, options).output; };
  contest.attn = call_of(row.pass, attn, leaves);
  if (!row.logit_clip) {
    const auto sdpa = [=, dropout_p = row.dropout_p, causal = row.mask == MaskKind::kCausal,
                       grouped = row.Hk != row.H] {
      const auto given = mask.defined() ? std::optional(mask) : std::nullopt;
      return at::scaled_dot_product_attention(q, k, v, given, dropout_p, causal, std::nullopt,
                                              grouped);
    };
    contest.sdpa = call_of(row.pass, sdpa, leaves);
  }
  const auto eager = [=, attend = EagerAttention(row, mask)] { return attend(q, k, v); };
  contest.eager = call_of(row.pass, eager, leaves);
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

/// Attention [B, H, T, D] in the middle of a layer that attn is compared with.
using Middle = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;

/// @param layer module of attn that takes x [B, T, E]
/// @param around what LibTorch computes of x around a `Middle`
template <class Layer, class Around>
Contest layer_contest(const Row& row, const std::shared_ptr<Layer>& layer, const Around& around) {
  const at::Tensor x = at::randn({row.B, row.L, row.H * row.D});
  std::vector<at::Tensor> inputs = layer->parameters();
  inputs.push_back(x);
  const Leaves leaves = make_leaves(row.pass, inputs, x.sizes());
  const Middle sdpa = [causal = row.mask == MaskKind::kCausal](const auto& q, const auto& k,
                                                               const auto& v) {
    return at::scaled_dot_product_attention(q, k, v, std::nullopt, /*dropout_p=*/0.0, causal);
  };
  const Middle eager = EagerAttention(row, /*mask=*/{});
  Contest contest;
  contest.attn = call_of(
      row.pass, [=] { return layer->forward(x); }, leaves);
  contest.sdpa = call_of(
      row.pass, [=] { return around(x, sdpa); }, leaves);
  contest.eager = call_of(
      row.pass, [=] { return around(x, eager); }, leaves);
  return contest;
}

Contest projected_contest(const Row& row) {
  const ProjectedMultiheadAttention layer(
      ProjectedMultiheadAttentionOptions(row.H * row.D).n_heads(row.H));
  return layer_contest(row, layer.ptr(), [=](const at::Tensor& x, const Middle& attend) {
    const at::Tensor heads =
        attend(split(linear(layer->queryEncoder, x), row), split(linear(layer->keyEncoder, x), row),
               split(linear(layer->valueEncoder, x), row));
    return linear(layer->MHA->project_out, merge(heads, row));
  });
}

Contest causal_contest(const Row& row) {
  const CausalMultiheadAttention layer(row.H * row.D, row.H);
  return layer_contest(row, layer.ptr(), [=](const at::Tensor& x, const Middle& attend) {
    const std::vector<at::Tensor> qkv = linear(layer->W_QKV, x).chunk(3, -1);
    const at::Tensor heads = attend(split(qkv[0], row), split(qkv[1], row), split(qkv[2], row));
    return linear(layer->W_O, merge(heads, row));
  });
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
