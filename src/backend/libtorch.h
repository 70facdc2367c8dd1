#pragma once

#include <attn/functional.h>

#include <optional>
#include <string>

#include "backend/call.h"

namespace attn {

/// Why `at::scaled_dot_product_attention` cannot express the call, or nothing when it can.
std::optional<std::string> libtorch_refusal(const AttentionCall& call);

/// Attention by `at::scaled_dot_product_attention`, on any device, with its gradients. Which of its
/// kernels runs is LibTorch's choice: on the CPU the flash kernel, or `matmul` and `softmax` where
/// the value size differs or the bias wants a gradient. The flash kernel has no second derivative
/// and throws where one is asked for.
///
/// A bool mask is added as −∞, so that NaN and ∞ in a blocked key reach the output.
AttentionResult libtorch_attention(const AttentionCall& call);

}  // namespace attn
