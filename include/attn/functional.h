#pragma once

#include <ATen/core/Tensor.h>
#include <attn/backend.h>
#include <attn/export.h>
#include <attn/mask.h>
#include <torch/arg.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace attn {

/// What the output of a row with no open key is when `masked_score` is −∞.
enum class FullyMasked {
  /// Zeros, with zero gradients.
  kZero,
  /// NaN, as softmax over nothing but −∞ gives.
  kNaN,
};

/// Options of `attention`.
struct ATTN_API AttentionOptions {
  /// Factor on query · key; 1/√D when not given.
  TORCH_ARG(std::optional<double>, scale) = std::nullopt;
  /// C of the clipping C·tanh(u) on the scaled logits u (Bello et al. 2016, arXiv:1611.09940),
  /// before the mask.
  TORCH_ARG(std::optional<double>, logit_clip) = std::nullopt;
  /// C of the soft cap C·tanh(u/C) on the scaled logits u (Gemma 2, arXiv:2408.00118), before the
  /// mask.
  TORCH_ARG(std::optional<double>, softcap) = std::nullopt;
  TORCH_ARG(Mask, mask) = Mask::none();
  /// The final logit of a blocked key. −∞ removes the key; a finite value makes a row with no open
  /// key the plain mean of all S values. It saturates at the lowest finite value of the logits' type,
  /// which is the dtype in the reference and float32 or float64 in the fused kernel.
  TORCH_ARG(double, masked_score) = -std::numeric_limits<double>::infinity();
  /// Rows with no open key, for a `masked_score` of −∞.
  TORCH_ARG(FullyMasked, fully_masked) = FullyMasked::kZero;
  /// Probability of dropping a weight, in [0, 1]; active whenever it is above 0. The others are divided
  /// by what it leaves. Both follow `torch::manual_seed`, but `kFused` drops other weights than
  /// `kReference`, which draws as Python does; it rounds the probability to a multiple of 1/65536, and
  /// divides by what the rounded one leaves.
  TORCH_ARG(double, dropout_p) = 0.0;
  /// Return the weights [B, H, L, S], after dropout. Where a gradient is asked for as well, `kFused`
  /// refuses.
  TORCH_ARG(bool, need_weights) = false;
  /// Return log Σ exp(logit) [B, H, L].
  TORCH_ARG(bool, need_logsumexp) = false;
  TORCH_ARG(Backend, backend) = Backend::kAuto;
};

/// Result of `attention`; what was not asked for is undefined.
struct AttentionResult {
  /// [B, H, L, Dv], in query's dtype (autocast's, where that is on).
  at::Tensor output;
  /// [B, H, L, S], after dropout, in the dtype of the output.
  at::Tensor weights;
  /// [B, H, L], float32 (float64 for float64 inputs); −∞ in a row with no open key, unless
  /// `masked_score` is finite.
  at::Tensor logsumexp;
  /// Which backend ran.
  Backend backend = Backend::kReference;
};

/// Scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762, equation 1):
///
///     output = dropout(softmax(mask(clip(scale · query · keyᵀ)))) · value
///
/// @param query [B, H, L, D]
/// @param key [B, Hk, S, D], H a multiple of Hk: query head h reads key head h / (H / Hk)
/// @param value [B, Hk, S, Dv]
///
/// Three dimensions mean no batch: [H, L, D], and the results have none either; a 4-D mask then has
/// B = 1. The dtype is float32, float64, bfloat16 or float16, the same for all. B, L and S may be
/// 0; without keys the output is zero.
///
/// Throws `c10::Error` "[attention] argument: expected …, got …" before any work.
ATTN_API AttentionResult attention(const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value, const AttentionOptions& options = {});

/// Why `backend` cannot take the call, or nothing when it can. The arguments must be valid for
/// `attention`.
ATTN_API std::optional<std::string> why_not(Backend backend, const at::Tensor& query,
                                            const at::Tensor& key, const at::Tensor& value,
                                            const AttentionOptions& options = {});

/// The backends of this build, in the order in which `kAuto` asks them.
ATTN_API std::vector<Backend> available_backends();

/// What multiplies in the modules' linear maps on this CPU and thread, and why: "oneDNN (…)", for
/// float32 maps of some size and their gradients, or "LibTorch's linear (…)", with Python's bits.
ATTN_API std::string projection_kernel();

}  // namespace attn
