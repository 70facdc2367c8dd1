#pragma once

#include <attn/functional.h>

#include "backend/call.h"

namespace attn {

/// `fused_forward` with a record for autograd, by which the kernel makes the gradients of query, key,
/// value and bias from output and log-sum-exp alone. It returns no
/// weights.
///
/// Where a graph of the gradients themselves is asked for (create_graph), they come from the
/// reference's operations, with the same weights dropped: right to any order, at the price of the
/// logits in memory.
AttentionResult fused_attention_with_gradients(const AttentionCall& call);

}  // namespace attn
