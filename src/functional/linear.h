#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/linear.h>

namespace attn {

/// x · Wᵀ + b as Python's Linear computes it; `torch::nn::Linear::forward` multiplies first and adds
/// then for 3-D inputs, which differs in the last bits. Where the default backend need not have
/// Python's bits, by oneDNN, and the gradients too, if that is faster on this CPU: `projection_kernel`.
at::Tensor project(const torch::nn::Linear& map, const at::Tensor& x);

}  // namespace attn
