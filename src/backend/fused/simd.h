#pragma once

#include <attn/export.h>

#include "kernel/attention.h"

namespace attn {

/// The kernel that runs on this thread: that of the innermost guard, else of the environment variable
/// ATTN_SIMD, else the fastest that the CPU has. Throws `c10::Error` where ATTN_SIMD names none.
const kernel::Kernel& chosen_kernel();

/// Makes a kernel that of this thread for as long as the guard lives; for tests.
class ATTN_API SimdGuard {
 public:
  explicit SimdGuard(const kernel::Kernel& kernel);
  ~SimdGuard();
  SimdGuard(const SimdGuard&) = delete;
  SimdGuard& operator=(const SimdGuard&) = delete;

 private:
  const kernel::Kernel* previous_;
};

}  // namespace attn
