#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <attn/functional.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "support/tensors.h"

namespace attn::testing {

/// Query, key, value and bias: those of a call, its gradients, or what else belongs to each.
using PerOperand = std::array<at::Tensor, 4>;
inline constexpr const char* kOperandNames[] = {"query", "key", "value", "bias"};
using Wanted = std::array<bool, 4>;
inline constexpr Wanted kAll = {true, true, true, true};

inline Mask without_bias(const Mask& mask) {
  Mask rest = Mask::none();
  if (mask.is_causal()) rest = rest & Mask::causal();
  if (mask.is_causal_bottom_right()) rest = rest & Mask::causal_bottom_right();
  if (mask.attend_tensor().defined()) rest = rest & Mask::attend(mask.attend_tensor());
  if (mask.block_tensor().defined()) rest = rest & Mask::block(mask.block_tensor());
  return rest;
}

/// A call of attention with what starts its backward pass.
struct GradientCall {
  PerOperand operands;  ///< [B, H, L, D], [B, Hk, S, D], [B, Hk, S, Dv]; the bias may be undefined
  AttentionOptions options = {};       ///< its mask without the bias
  at::Tensor output_gradient = {};     ///< undefined: zero
  at::Tensor logsumexp_gradient = {};  ///< undefined: zero

  /// The same numbers in float64.
  GradientCall in_float64() const {
    const auto wide = [](const at::Tensor& x) { return x.defined() ? x.to(at::kDouble) : x; };
    GradientCall call = *this;
    for (at::Tensor& operand : call.operands) operand = wide(operand);
    call.output_gradient = wide(output_gradient);
    call.logsumexp_gradient = wide(logsumexp_gradient);
    return call;
  }

  /// Leaves of a graph in the operands' memory, of which the wanted ones require a gradient.
  PerOperand leaves(const Wanted& wanted = kAll) const {
    PerOperand leaves;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (operands[i].defined()) leaves[i] = operands[i].detach().requires_grad_(wanted[i]);
    }
    return leaves;
  }

  AttentionResult forward(const PerOperand& from, Backend backend) const {
    AttentionOptions with_bias = options;
    if (from[3].defined()) with_bias.mask(options.mask() & Mask::bias(from[3]));
    with_bias.backend(backend).need_logsumexp(options.need_logsumexp() ||
                                              logsumexp_gradient.defined());
    return attention(from[0], from[1], from[2], with_bias);
  }

  /// The wanted gradients by a backend.
  PerOperand gradients(Backend backend, const Wanted& wanted = kAll) const {
    const PerOperand from = leaves(wanted);
    const AttentionResult result = forward(from, backend);
    EXPECT_EQ(result.backend, backend);
    std::vector<at::Tensor> roots, starts, inputs;
    if (output_gradient.defined()) {
      roots.push_back(result.output), starts.push_back(output_gradient);
    }
    if (logsumexp_gradient.defined() && result.logsumexp.requires_grad()) {
      roots.push_back(result.logsumexp), starts.push_back(logsumexp_gradient);
    }
    for (const at::Tensor& leaf : from) {
      if (leaf.defined() && leaf.requires_grad()) inputs.push_back(leaf);
    }
    const auto found = torch::autograd::grad(roots, inputs, starts, /*retain_graph=*/false,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    PerOperand gradients;
    auto next = found.begin();
    for (size_t i = 0; i < from.size(); ++i) {
      if (!from[i].defined() || !from[i].requires_grad()) continue;
      gradients[i] = next->defined() ? *next : at::zeros_like(from[i]);
      ++next;
    }
    return gradients;
  }
  PerOperand fused(const Wanted& wanted = kAll) const { return gradients(Backend::kFused, wanted); }
  /// The truth: the documents' formula in float64.
  PerOperand truth(const Wanted& wanted = kAll) const {
    return in_float64().gradients(Backend::kReference, wanted);
  }
};

/// How far each element of a gradient may lie from the truth.
///
/// A gradient is a sum of products; its error is a few relative errors of its terms, so that bounds
/// are stated against the sum of their absolute values. With u = 2^-24 (2^-53 in float64): a weight
/// e^(logit − logsumexp) is off by what its logit is, √D · u times the logits' size at random and ten
/// times that at the extreme; the value's product with the output's gradient by √Dv · u likewise; sums
/// over queries or keys gather √L or √S · u. All three come together in a term, beside some roundings
/// of single numbers, of |logit| and |logsumexp| up to 50. Where up to 128 equal terms are summed one
/// after another, they err to one side. The truth is in float64 as well, whose sums err in the same
/// way.
///
/// Half types: the output that the row's sum Σ dO · O is made of was rounded; bfloat16's weights and
/// their gradients are, before they are multiplied; the result is.
class GradientBounds {
 public:
  GradientBounds(const GradientCall& call, double weight_scale = 1.0) {
    const auto& [query, key, value, bias] = call.operands;
    const at::ScalarType dtype = query.scalar_type();
    const auto D = static_cast<double>(query.size(3)), Dv = static_cast<double>(value.size(3)),
               L = static_cast<double>(query.size(2)), S = static_cast<double>(key.size(2));
    const double scale = std::abs(call.options.scale().value_or(1.0 / std::sqrt(D)));
    const double clip = std::max(1.0, call.options.logit_clip().value_or(1.0));
    const double logit = std::max(1.0, scale * std::sqrt(D)) * clip;
    const double u = dtype == at::kDouble ? 0x1p-53 : 0x1p-24;
    relative_ = u * (10.0 * (std::sqrt(D) * logit + std::sqrt(Dv) + std::sqrt(L + S)) + 300.0 +
                     (dtype == at::kDouble ? L + S : 0.0));
    rounding_ = dtype == at::kHalf || dtype == at::kBFloat16 ? epsilon(dtype) / 2 : 0.0;
    relative_ += (dtype == at::kBFloat16 ? 4.0 : 2.0) * rounding_;
    set_sizes(call.in_float64(), scale * clip, weight_scale);
  }

  void expect(const PerOperand& actual, const PerOperand& truth) const {
    for (size_t i = 0; i < actual.size(); ++i) {
      if (actual[i].defined()) expect(actual[i], truth[i], sizes_[i], kOperandNames[i]);
    }
  }

 private:
  /// Sums of the absolute values of each gradient's terms.
  void set_sizes(const GradientCall& call, double scale, double weight_scale) {
    const auto& [query, key, value, bias] = call.operands;
    const int64_t group = key.size(1) > 0 ? query.size(1) / key.size(1) : 1;
    const auto every = [&](const at::Tensor& x) { return x.abs().repeat_interleave(group, 1); };
    const auto grouped = [&](const at::Tensor& x) {  // [B, H, S, ·] → [B, Hk, S, ·]
      return x.unflatten(1, {key.size(1), group}).sum(2);
    };
    AttentionOptions options = call.options;
    options.dropout_p(0.0).need_weights(true).backend(Backend::kReference);
    if (bias.defined()) options.mask(options.mask() & Mask::bias(bias));
    // Dropout multiplies a kept weight, and its gradient once more.
    const at::Tensor weights =
        attention(query, key, value, options).weights.nan_to_num(0.0) * weight_scale;
    const at::Tensor start =
        call.output_gradient.defined()
            ? call.output_gradient.abs()
            : at::zeros({query.size(0), query.size(1), query.size(2), value.size(3)},
                        query.options());
    at::Tensor row = (at::matmul(weights, every(value)) * start).sum(-1, true);  // [B, H, L, 1]
    if (call.logsumexp_gradient.defined()) {
      row = row + call.logsumexp_gradient.abs().unsqueeze(-1);
    }
    const at::Tensor product = at::matmul(start, every(value).transpose(2, 3)) * weight_scale;
    const at::Tensor logits = weights * (product + row);  // [B, H, L, S]
    sizes_[0] = at::matmul(logits, every(key)) * scale;
    sizes_[1] = grouped(at::matmul(logits.transpose(2, 3), query.abs())) * scale;
    sizes_[2] = grouped(at::matmul(weights.transpose(2, 3), start));
    if (bias.defined()) sizes_[3] = logits.sum_to_size(bias.sizes());
  }

  void expect(const at::Tensor& actual, const at::Tensor& truth, const at::Tensor& size,
              const char* name) const {
    ASSERT_EQ(actual.sizes(), truth.sizes()) << name;
    const at::Tensor a = actual.to(at::kDouble);
    // A gradient of the bias has the bias's dtype.
    const double rounding = std::max(rounding_, epsilon(actual.scalar_type()) / 2);
    // The least numbers are rounded to steps.
    const double step = actual.scalar_type() == at::kHalf ? 0x1p-25 : 1e-36;
    const at::Tensor bound = size * relative_ + truth.abs() * rounding + step;
    const at::Tensor near = (a - truth).abs().le(bound);
    const at::Tensor same = a.eq(truth).logical_or(a.isnan().logical_and(truth.isnan()));
    const at::Tensor wrong = near.logical_or(same).logical_not().flatten().nonzero().flatten();
    if (wrong.numel() == 0) return;
    const int64_t first = wrong[0].item<int64_t>();
    FAIL() << wrong.numel() << " of " << a.numel() << " in the gradient of " << name
           << ", the first at " << first << ": " << a.flatten()[first].item<double>()
           << " instead of " << truth.flatten()[first].item<double>() << ", bound "
           << bound.flatten()[first].item<double>();
  }

  double relative_, rounding_;
  PerOperand sizes_;
};

/// That the fused backend's wanted gradients are the truth.
inline void expect_right_gradients(const GradientCall& call, const Wanted& wanted = kAll) {
  GradientBounds(call).expect(call.fused(wanted), call.truth(wanted));
}

}  // namespace attn::testing
