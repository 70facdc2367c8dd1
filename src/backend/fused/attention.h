#pragma once

#include <attn/functional.h>

#include "backend/call.h"

namespace attn {

/// Why the fused kernel cannot take a call, or nothing.
std::optional<std::string> fused_refusal(const AttentionCall& call);

/// Attention by the fused kernel (`kernel/attention.h`), on the threads of LibTorch, with its
/// gradients. The logits are never materialised: it needs O(L + S) memory beside inputs and results,
/// forward and backward. The bits of results and gradients depend neither on the number of threads nor
/// on batchmates.
///
/// Under autocast, query, key and value are cast as LibTorch's own attention casts them. The output
/// lies in memory as [B, L, H, Dv], so that merging the heads copies nothing.
AttentionResult fused_attention(const AttentionCall& call);

}  // namespace attn
