#pragma once

#include <cstdint>
#include <functional>

#include "kernel/attention.h"

namespace attn {

using KernelTask = std::function<void(int64_t task, void* workspace, void* partials)>;

/// Runs all tasks of a plan, then all its merges, on the threads of LibTorch where so many
/// floating-point operations are worth it. Each thread takes the next task when it is done with its
/// last, and has a workspace of its own, which outlives the call.
void run_plan(const kernel::Plan& plan, double operations, const KernelTask& run,
              const KernelTask& merge);

}  // namespace attn
