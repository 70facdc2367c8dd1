#pragma once

#include <ATen/core/Tensor.h>
#include <attn/functional.h>

#include <optional>

namespace attn {

/// The letters in which the reference writes its two contractions. Each gives other last bits, so
/// that a module names its document's; the other backends do not care.
enum class Spelling {
  /// matmul on [B, H, ., .]
  kMatmul,
  /// matmul on [H, B, ., .]
  kMatmulHeadsFirst,
  /// einsum on [B, H, ., .]
  kEinsum,
};

/// One attention, valid by construction: whoever builds it has checked it, and no backend checks
/// again.
struct AttentionCall {
  at::Tensor query;  ///< [B|1, H, L, D]; batches of 1 broadcast
  at::Tensor key;    ///< [B|1, Hk, S, D], H a multiple of Hk
  at::Tensor value;  ///< [B|1, Hk, S, Dv]
  /// logit = query · key / divisor. Dividing by √d and multiplying by 1/√d differ in the last bits.
  double divisor = 1.0;
  std::optional<double> logit_clip = std::nullopt;
  std::optional<double> softcap = std::nullopt;
  /// Its tensors broadcast to [B, H, L, S].
  Mask mask = Mask::none();
  double masked_score = -std::numeric_limits<double>::infinity();
  FullyMasked fully_masked = FullyMasked::kZero;
  double dropout_p = 0.0;
  /// Drop what the kernel drops by this seed; where there is none, a backend draws for itself.
  std::optional<uint64_t> dropout_seed = std::nullopt;
  bool need_weights = false;
  bool need_logsumexp = false;
  Spelling spelling = Spelling::kMatmul;
};

}  // namespace attn
