#include "backend/fused/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "kernel/attention.h"

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "Without OpenMP, at::parallel_for runs everything on one thread, in silence."
#endif

namespace attn {
namespace {

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

}  // namespace

void run_tasks(int64_t tasks, int64_t workspace_bytes, bool parallel,
               const std::function<void(int64_t task, void* workspace)>& run) {
  std::atomic<int64_t> next = 0;
  const auto work = [&](int64_t, int64_t) {
    void* workspace = workspace_of_thread(workspace_bytes);
    for (int64_t task = next++; task < tasks; task = next++) run(task, workspace);
  };
  const int64_t threads = std::min<int64_t>(tasks, at::get_num_threads());
  if (parallel && threads > 1) {
    at::parallel_for(0, threads, 1, work);
  } else {
    work(0, 1);
  }
}

}  // namespace attn
