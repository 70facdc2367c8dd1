#pragma once

#include <attn/functional.h>

#include "backend/call.h"

namespace attn {

/// Output, weights and log-sum-exp of a call by the kernel, without a record for gradients. The output
/// lies in memory as [B, L, H, Dv], so that merging the heads copies nothing.
AttentionResult fused_forward(const AttentionCall& call);

/// What the gradients are made of.
struct ForwardPass {
  at::Tensor output;     ///< [B, H, L, Dv]
  at::Tensor logsumexp;  ///< [B, H, L], in the type of the sums
  /// What rounding took from it, likewise. Without, a row whose logits are all −1e9 would lose the number
  /// of its keys.
  at::Tensor logsumexp_rest;
};

/// The same with these as its results, whatever the call asks for.
ForwardPass fused_forward_pass(const AttentionCall& call);

}  // namespace attn
