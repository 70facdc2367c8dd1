#include "backend/fused/threads.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#if AT_PARALLEL_OPENMP && !defined(_OPENMP) && !defined(__clang_analyzer__)
#error "Without OpenMP, at::parallel_for runs everything on one thread, in silence."
#endif

namespace attn {
namespace {

/// Below so many operations, waking a second thread costs more than it saves.
constexpr double kWorthThreads = 1e6;

constexpr std::align_val_t kAlign{kernel::kAlignment};

struct AlignedDelete {
  void operator()(char* memory) const { ::operator delete(memory, kAlign); }
};

/// This thread's workspace, grown to at least so many bytes.
void* workspace_of_thread(int64_t bytes) {
  thread_local std::unique_ptr<char, AlignedDelete> memory;
  thread_local int64_t size = 0;
  if (size < bytes) {
    memory.reset();
    size = 0;
    memory.reset(static_cast<char*>(::operator new(static_cast<size_t>(bytes), kAlign)));
    size = bytes;
  }
  return memory.get();
}

/// Calls run(task, workspace, partials) for every task, on this thread alone unless `parallel`.
void run_tasks(int64_t tasks, int64_t workspace_bytes, void* partials, bool parallel,
               const KernelTask& run) {
  std::atomic<int64_t> next = 0;
  const auto work = [&](int64_t, int64_t) {
    void* workspace = workspace_of_thread(workspace_bytes);
    for (int64_t task = next++; task < tasks; task = next++) run(task, workspace, partials);
  };
  const int64_t threads = std::min<int64_t>(tasks, at::get_num_threads());
  if (parallel && threads > 1) {
    at::parallel_for(0, threads, 1, work);
  } else {
    work(0, 1);
  }
}

}  // namespace

void run_plan(const kernel::Plan& plan, double operations, const KernelTask& run,
              const KernelTask& merge) {
  at::Tensor partials;
  if (plan.partials_bytes > 0) {
    partials = at::empty({plan.partials_bytes}, at::TensorOptions().dtype(at::kByte));
  }
  void* memory = partials.defined() ? partials.data_ptr() : nullptr;
  const bool parallel = operations >= kWorthThreads;
  run_tasks(plan.tasks, plan.workspace_bytes, memory, parallel, run);
  run_tasks(plan.merges, plan.workspace_bytes, memory, parallel, merge);
}

}  // namespace attn
