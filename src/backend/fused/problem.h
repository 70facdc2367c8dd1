#pragma once

#include "backend/call.h"
#include "kernel/attention.h"

namespace attn {

/// The batches that the logits have, and so the weights before dropout; those of value aside.
int64_t logit_batches(const AttentionCall& call);

/// A call as the kernel sees it, without places for results. Points into the tensors of `call`, which
/// must stay alive. A call that drops weights has its seed.
kernel::Problem fused_problem(const AttentionCall& call);

/// A tensor [B|1, H|1, rows|1, columns] where it lies; its columns count as adjacent where there is
/// but one.
kernel::View operand_view(const at::Tensor& tensor);

}  // namespace attn
