#pragma once

#include "backend/call.h"

namespace attn {

/// Runs the call on the requested backend; `kAuto` is the default of this thread, and in the end
/// the first that takes the call. A named backend that refuses throws its reason as `BackendError`.
AttentionResult run(const AttentionCall& call, Backend requested = Backend::kAuto);

/// Why a named backend cannot take the call, or nothing; nothing for `kAuto`.
std::optional<std::string> refusal(Backend backend, const AttentionCall& call);

}  // namespace attn
