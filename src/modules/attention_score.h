#pragma once

#include <attn/modules/projected_multihead_attention.h>

#include <optional>

namespace attn {

/// C, where the score clips its logits.
inline std::optional<double> logit_clip(const AttentionScoreOptions& options) {
  return options.use_tanh() ? std::optional(options.C()) : std::nullopt;
}

}  // namespace attn
