#pragma once

#include <attn/functional.h>

#include "backend/call.h"

namespace attn {

/// Output, weights and log-sum-exp of a call by the kernel, without a record for gradients. The output
/// lies in memory as [B, L, H, Dv], so that merging the heads copies nothing.
AttentionResult fused_forward(const AttentionCall& call);

}  // namespace attn
