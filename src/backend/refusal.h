#pragma once

#include <optional>
#include <string>

#include "backend/call.h"

namespace attn {

/// A kind of call that a backend cannot take, and why.
struct Refusal {
  bool (*applies)(const AttentionCall&);
  const char* reason;
};

/// The reason of the first refusal that applies to the call, or nothing.
template <class Refusals>
std::optional<std::string> first_reason(const Refusals& refusals, const AttentionCall& call) {
  for (const Refusal& refusal : refusals) {
    if (refusal.applies(call)) return refusal.reason;
  }
  return std::nullopt;
}

}  // namespace attn
