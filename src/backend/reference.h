#pragma once

#include <attn/functional.h>

#include "backend/call.h"

namespace attn {

/// Attention as the documents write it, in ATen's own operations: the specification of every other
/// backend.
///
///     weights = softmax(mask(clip(query · keyᵀ / divisor) + bias))
///     output = dropout(weights) · value
///
/// Equal bit for bit, gradients included, to eager Python on the same machine, LibTorch and thread
/// count. It takes every call, on any device, and materialises the logits.
AttentionResult reference_attention(const AttentionCall& call);

/// C·tanh(u) of the scaled logits u = query · keyᵀ / divisor, or u itself without a clip. [..., L,
/// D] · [..., S, D] → [..., L, S]
at::Tensor reference_logits(const at::Tensor& query, const at::Tensor& key, double divisor,
                            std::optional<double> logit_clip,
                            Spelling spelling = Spelling::kMatmul);

}  // namespace attn
