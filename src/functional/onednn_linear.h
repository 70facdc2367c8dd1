#pragma once

#include <ATen/core/Tensor.h>

namespace attn {

/// Whether this LibTorch offers oneDNN's matrix product with the arguments that attn gives it.
bool has_onednn_linear();

/// Whether oneDNN may read the tensor as it is: dense float32 on the CPU, no derivative carried along,
/// and nothing but autograd ahead of the CPU's kernel: no autocast, tracing, vmap, lazy negation or
/// other layer of the dispatcher that the operator may not know.
bool is_plain_float(const at::Tensor& tensor);

/// Whether x · Wᵀ is a product, and one that oneDNN computes faster than MKL's AVX2: a larger one where
/// a gradient is recorded. `bias` may be undefined, here and below.
bool gains_by_onednn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// x · Wᵀ + b of plain tensors, W and b contiguous, and differentiable. The gradients are oneDNN's too
/// where it gains; second derivatives go by LibTorch's operators.
at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace attn
