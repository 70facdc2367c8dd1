#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "backend/call.h"
#include "backend/fused/forward.h"

namespace attn {

/// The tensors of a call that have gradients, in their order everywhere.
enum Differentiable : uint8_t { kQuery, kKey, kValue, kBias, kDifferentiables };
using WhichGradients = std::array<bool, kDifferentiables>;
using GradientTensors = std::array<at::Tensor, kDifferentiables>;

/// The asked-for gradients of a call by the kernel, from its forward pass and the gradients of output and
/// log-sum-exp, either of which may be undefined: zero. Those of query, key and value lie in memory in
/// the order of what they belong to, columns innermost, so that merging heads that were split copies
/// nothing. The logits are never materialised: it needs O(L + S) memory.
GradientTensors fused_backward(const AttentionCall& call, const ForwardPass& pass,
                               const at::Tensor& output_gradient,
                               const at::Tensor& logsumexp_gradient, const WhichGradients& wanted);

}  // namespace attn
