#include "bench/fma_peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/fma_peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_ONCE
#include <algorithm>
#include <chrono>

#if HWY_ARCH_X86_64
#include <immintrin.h>
#endif
#endif

// Twelve independent chains hide the latency of an FMA (four cycles, two a cycle) and leave four of
// AVX2's sixteen registers. They are named, not an array, which would live in memory.

HWY_BEFORE_NAMESPACE();
namespace attn::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Runs twelve chains of `steps` multiply-adds x ← x · factor + 1; returns the flops, and in `sum`
/// something that depends on all of them.
HWY_NOINLINE double multiply_add(int steps, float factor, float& sum) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, factor);
  const auto b = hn::Set(d, 1.0F);
  auto x0 = hn::Zero(d), x1 = b, x2 = hn::Add(x1, b), x3 = hn::Add(x2, b), x4 = hn::Add(x3, b),
       x5 = hn::Add(x4, b), x6 = hn::Add(x5, b), x7 = hn::Add(x6, b), x8 = hn::Add(x7, b),
       x9 = hn::Add(x8, b), x10 = hn::Add(x9, b), x11 = hn::Add(x10, b);
  for (int i = 0; i < steps; ++i) {
    x0 = hn::MulAdd(x0, a, b), x1 = hn::MulAdd(x1, a, b), x2 = hn::MulAdd(x2, a, b);
    x3 = hn::MulAdd(x3, a, b), x4 = hn::MulAdd(x4, a, b), x5 = hn::MulAdd(x5, a, b);
    x6 = hn::MulAdd(x6, a, b), x7 = hn::MulAdd(x7, a, b), x8 = hn::MulAdd(x8, a, b);
    x9 = hn::MulAdd(x9, a, b), x10 = hn::MulAdd(x10, a, b), x11 = hn::MulAdd(x11, a, b);
  }
  x0 =
      hn::Add(hn::Add(hn::Add(x0, x1), hn::Add(x2, x3)), hn::Add(hn::Add(x4, x5), hn::Add(x6, x7)));
  x0 = hn::Add(x0, hn::Add(hn::Add(x8, x9), hn::Add(x10, x11)));
  sum = hn::GetLane(hn::SumOfLanes(d, x0));
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d)) * steps;
}

}  // namespace attn::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::bench {
namespace {

HWY_EXPORT(multiply_add);

#if HWY_ARCH_X86_64
/// As `multiply_add`, by dot products of bfloat16 pairs.
__attribute__((target("avx512f,avx512bf16"), noinline)) double dot_pairs(int steps, float factor,
                                                                         float& sum) {
  const __m512 factors = _mm512_set1_ps(factor);
  const __m512bh a = _mm512_cvtne2ps_pbh(factors, factors);
  __m512 x0 = _mm512_setzero_ps(), x1 = x0, x2 = x0, x3 = x0, x4 = x0, x5 = x0, x6 = x0, x7 = x0,
         x8 = x0, x9 = x0, x10 = x0, x11 = x0;
  for (int i = 0; i < steps; ++i) {
    x0 = _mm512_dpbf16_ps(x0, a, a), x1 = _mm512_dpbf16_ps(x1, a, a);
    x2 = _mm512_dpbf16_ps(x2, a, a), x3 = _mm512_dpbf16_ps(x3, a, a);
    x4 = _mm512_dpbf16_ps(x4, a, a), x5 = _mm512_dpbf16_ps(x5, a, a);
    x6 = _mm512_dpbf16_ps(x6, a, a), x7 = _mm512_dpbf16_ps(x7, a, a);
    x8 = _mm512_dpbf16_ps(x8, a, a), x9 = _mm512_dpbf16_ps(x9, a, a);
    x10 = _mm512_dpbf16_ps(x10, a, a), x11 = _mm512_dpbf16_ps(x11, a, a);
  }
  sum = _mm512_reduce_add_ps(((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) +
                             ((x8 + x9) + (x10 + x11)));
  return 2.0 * 12.0 * 32.0 * steps;
}
#endif

/// The best of many short runs.
template <class Loop>
double gflops(const Loop& loop) {
  constexpr int kRuns = 100;
  constexpr int kSteps = 20000;
  volatile float factor = 0.5F;  // unknown to the compiler
  volatile float sink = 0.0F;
  double best = 0.0;
  for (int run = 0; run < kRuns; ++run) {
    float sum = 0.0F;
    const auto start = std::chrono::steady_clock::now();
    const double flops = loop(kSteps, factor, sum);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    sink = sum;
    best = std::max(best, flops / time.count() * 1e-9);
  }
  static_cast<void>(sink);
  return best;
}

}  // namespace

FmaPeak measure_fma_peak() {
  FmaPeak peak;
  peak.float32 = gflops([](int steps, float factor, float& sum) {
    return HWY_DYNAMIC_DISPATCH(multiply_add)(steps, factor, sum);
  });
#if HWY_ARCH_X86_64
  if (__builtin_cpu_supports("avx512bf16")) peak.bfloat16 = gflops(dot_pairs);
#endif
  return peak;
}

}  // namespace attn::bench
#endif
