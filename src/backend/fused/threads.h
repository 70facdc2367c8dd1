#pragma once

#include <cstdint>
#include <functional>

namespace attn {

/// Calls run(task, workspace) for every task, on the threads of LibTorch if `parallel`, else on this
/// one. Each thread takes the next task when it is done with its last, and has a workspace of
/// `workspace_bytes` of its own, which outlives the call.
void run_tasks(int64_t tasks, int64_t workspace_bytes, bool parallel,
               const std::function<void(int64_t task, void* workspace)>& run);

}  // namespace attn
