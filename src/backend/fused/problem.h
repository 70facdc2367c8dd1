#pragma once

#include <attn/functional.h>

#include "backend/call.h"
#include "kernel/attention.h"

namespace attn {

/// A call as the kernel sees it, and the results that it will write.
struct FusedProblem {
  kernel::Problem problem;
  AttentionResult result;
};

/// Points into the tensors of `call`, which must stay alive; allocates the results.
FusedProblem fused_problem(const AttentionCall& call);

}  // namespace attn
