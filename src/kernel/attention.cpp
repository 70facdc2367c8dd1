#include "kernel/attention.h"

// Highway avoids EMU128, its portable target, with early GCC 12, for a fault in how that vectorises
// products' upper halves; there are none here, and HWY_SCALAR lacks what a tile needs.
#define HWY_BROKEN_EMU128 0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/attention.cpp"
// Scalable vectors have no size that a tile could be built on; AVX3_DL adds nothing that is used.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// How the queries of every head are cut into tasks of some tiles each.
struct Cut {
  int64_t per_task;  ///< queries
  int64_t parts;     ///< tasks of a head
};

template <class Math>
HWY_INLINE Cut cut(const Problem& p) {
  constexpr int64_t kWidth = QueryTiles<Math, 2>::kWidth;
  const int64_t tiles = (p.queries + kWidth - 1) / kWidth;
  const int64_t shared = Math::reads_in_place(p) ? 1 : QueryTiles<Math, 2>::kMaxTiles;
  const int64_t per_task = std::max<int64_t>(1, std::min(shared, tiles)) * kWidth;
  return {per_task, (p.queries + per_task - 1) / per_task};
}

template <class Math>
Plan plan_of(const Problem& p) {
  const Cut c = cut<Math>(p);
  Plan plan;
  plan.tasks = p.batches * p.heads * c.parts;
  plan.workspace_bytes = QueryTiles<Math, 2>::space(p, c.per_task / QueryTiles<Math, 2>::kWidth);
  return plan;
}

template <class Math, int NV>
HWY_NOINLINE void run_tiles(const Problem& p, int64_t b, int64_t h, int64_t first, int64_t last,
                            void* workspace) {
  Space space(workspace);
  QueryTiles<Math, NV>(p, b, h, first, last, space).run();
}

template <class Math>
void run_task(const Problem& p, int64_t task, void* workspace) {
  const Cut c = cut<Math>(p);
  const int64_t part = task % c.parts;
  const int64_t head = task / c.parts;
  const int64_t first = (p.causal ? c.parts - 1 - part : part) * c.per_task;  // the longest first
  const int64_t last = std::min(first + c.per_task, p.queries);
  const int64_t b = head / p.heads;
  const int64_t h = head % p.heads;
  if (last - first <= QueryTiles<Math, 1>::kWidth) {
    run_tiles<Math, 1>(p, b, h, first, last, workspace);
  } else {
    run_tiles<Math, 2>(p, b, h, first, last, workspace);
  }
}

Plan plan(const Problem& p) {
  return p.element == Element::kFloat64 ? plan_of<SumTypeMath<double>>(p)
                                        : plan_of<SumTypeMath<float>>(p);
}

void run(const Problem& p, int64_t task, void* workspace, void*) {
  p.element == Element::kFloat64 ? run_task<SumTypeMath<double>>(p, task, workspace)
                                 : run_task<SumTypeMath<float>>(p, task, workspace);
}

void merge(const Problem&, int64_t, void*, const void*) {}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernel {
namespace {

// Highway's headers alone are used: asking the CPU through its library would make that library a
// dependency of every program. The features are those of Highway's attributes for each target.
#if HWY_ARCH_X86
bool has_sse4() {
  return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
         __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("aes");
}
bool has_avx2() {
  return has_sse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

}  // namespace

const std::vector<Kernel>& supported_kernels() {
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> found;
#if HWY_TARGETS & HWY_AVX3
    if (has_avx512()) found.push_back({"avx512", N_AVX3::plan, N_AVX3::run, N_AVX3::merge});
#endif
#if HWY_TARGETS & HWY_AVX2
    if (has_avx2()) found.push_back({"avx2", N_AVX2::plan, N_AVX2::run, N_AVX2::merge});
#endif
#if HWY_TARGETS & HWY_SSE4
    if (has_sse4()) found.push_back({"sse4", N_SSE4::plan, N_SSE4::run, N_SSE4::merge});
#endif
#if HWY_TARGETS & HWY_NEON
    found.push_back({"neon", N_NEON::plan, N_NEON::run, N_NEON::merge});
#endif
#if HWY_TARGETS & HWY_EMU128
    found.push_back({"scalar", N_EMU128::plan, N_EMU128::run, N_EMU128::merge});
#endif
    return found;
  }();
  return kernels;
}

}  // namespace attn::kernel
#endif
