#pragma once

#include <attn/functional.h>
#include <backend/fused/simd.h>
#include <gtest/gtest.h>

#include <string>

namespace attn::testing {

/// Calls `check` once for each SIMD target of this CPU, which the fused backend then runs on.
template <class Check>
void on_every_target(Check check) {
  for (const kernel::Kernel& kernel : kernel::supported_kernels()) {
    SCOPED_TRACE(std::string(kernel.name));
    const SimdGuard guard(kernel);
    check();
  }
}

inline AttentionOptions fused(const Mask& mask = Mask::none()) {
  return AttentionOptions().backend(Backend::kFused).mask(mask);
}

}  // namespace attn::testing
