// STUB
#include "kernel/attention.h"

#define HWY_BROKEN_EMU128 0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/gradients.cpp"
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

Plan plan_gradients(const Problem&, const Gradients&) { return {}; }
void run_gradients(const Problem&, const Gradients&, int64_t, void*, void*) {}
void merge_gradients(const Problem&, const Gradients&, int64_t, void*, void*) {}
#if HWY_TARGET == HWY_AVX3
Plan plan_gradients_bf16(const Problem&, const Gradients&) { return {}; }
void run_gradients_bf16(const Problem&, const Gradients&, int64_t, void*, void*) {}
void merge_gradients_bf16(const Problem&, const Gradients&, int64_t, void*, void*) {}
#endif

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
