#include "backend/fused/simd.h"

#include <attn/backend.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace attn {
namespace {

thread_local const kernel::Kernel* guarded_kernel = nullptr;

const kernel::Kernel& kernel_of_environment() {
  const auto& kernels = kernel::supported_kernels();
  const char* name = std::getenv("ATTN_SIMD");
  if (name == nullptr || *name == '\0') return kernels.front();
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const kernel::Kernel& k) { return k.name == name; });
  TORCH_CHECK(found != kernels.end(), "[environment] ATTN_SIMD: expected one of ",
              c10::Join(", ", simd_targets()), " on this CPU, got \"", name, "\"");
  return *found;
}

}  // namespace

const kernel::Kernel& chosen_kernel() {
  if (guarded_kernel != nullptr) return *guarded_kernel;
  static const kernel::Kernel& chosen = kernel_of_environment();
  return chosen;
}

SimdGuard::SimdGuard(const kernel::Kernel& kernel)
    : previous_(std::exchange(guarded_kernel, &kernel)) {}

SimdGuard::~SimdGuard() { guarded_kernel = previous_; }

std::string simd_target() { return std::string(chosen_kernel().name); }

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (const kernel::Kernel& kernel : kernel::supported_kernels()) names.emplace_back(kernel.name);
  return names;
}

}  // namespace attn
