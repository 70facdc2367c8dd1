#pragma once

#include <ATen/ops/linear.h>
#include <torch/nn/modules/linear.h>

namespace attn {

/// x · Wᵀ + b as Python's Linear computes it. `torch::nn::Linear::forward` multiplies first and
/// adds then for 3-D inputs, which differs in the last bits.
inline at::Tensor project(const torch::nn::Linear& map, const at::Tensor& x) {
  return at::linear(x, map->weight, map->bias);
}

}  // namespace attn
