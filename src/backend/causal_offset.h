#pragma once

#include <algorithm>
#include <optional>

#include "backend/call.h"

namespace attn {

/// Query i sees the keys j ≤ i + offset, of both alignments where the mask has both; nothing without
/// a causal mask.
inline std::optional<int64_t> causal_offset(const AttentionCall& call) {
  const int64_t bottom_right = call.key.size(2) - call.query.size(2);
  if (!call.mask.is_causal_bottom_right()) {
    return call.mask.is_causal() ? std::optional<int64_t>(0) : std::nullopt;
  }
  return call.mask.is_causal() ? std::min<int64_t>(0, bottom_right) : bottom_right;
}

}  // namespace attn
