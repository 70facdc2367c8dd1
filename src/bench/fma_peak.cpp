#include "bench/fma_peak.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace attn::bench {
namespace {

using Vector16 = float __attribute__((vector_size(16)));
using Vector32 = float __attribute__((vector_size(32)));
using Vector64 = float __attribute__((vector_size(64)));

template <class Vector>
[[gnu::always_inline]] inline float sum_of_lanes(const Vector& x) {
  float sum = 0.0F;
  for (size_t lane = 0; lane < sizeof(Vector) / sizeof(float); ++lane) sum += x[lane];
  return sum;
}

/// Runs twelve chains of `steps` multiply-adds x ← x · factor + 1, which the compiler fuses where
/// the CPU can; returns the flops, and in `sum` something that depends on all of them.
///
/// Twelve chains hide the latency of an FMA (four cycles, two a cycle) and leave four of AVX2's
/// sixteen registers. They are named, not an array, which would live in memory.
template <class Vector>
[[gnu::always_inline]] inline double multiply_add(int steps, float factor, float& sum) {
  const Vector a = Vector{} + factor;
  const Vector b = Vector{} + 1.0F;
  Vector x0 = b, x1 = x0 + b, x2 = x1 + b, x3 = x2 + b, x4 = x3 + b, x5 = x4 + b, x6 = x5 + b,
         x7 = x6 + b, x8 = x7 + b, x9 = x8 + b, x10 = x9 + b, x11 = x10 + b;
  for (int i = 0; i < steps; ++i) {
    x0 = x0 * a + b, x1 = x1 * a + b, x2 = x2 * a + b, x3 = x3 * a + b;
    x4 = x4 * a + b, x5 = x5 * a + b, x6 = x6 * a + b, x7 = x7 * a + b;
    x8 = x8 * a + b, x9 = x9 * a + b, x10 = x10 * a + b, x11 = x11 * a + b;
  }
  const Vector total =
      ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) + ((x8 + x9) + (x10 + x11));
  sum = sum_of_lanes(total);
  return 2.0 * 12.0 * (sizeof(Vector) / sizeof(float)) * steps;
}

using Loop = double (*)(int steps, float factor, float& sum);

double with_128_bits(int steps, float factor, float& sum) {
  return multiply_add<Vector16>(steps, factor, sum);
}

#ifdef __x86_64__
[[gnu::target("avx2,fma")]] double with_avx2(int steps, float factor, float& sum) {
  return multiply_add<Vector32>(steps, factor, sum);
}

[[gnu::target("avx512f")]] double with_avx512(int steps, float factor, float& sum) {
  return multiply_add<Vector64>(steps, factor, sum);
}

/// As `multiply_add`, by dot products of bfloat16 pairs.
[[gnu::target("avx512f,avx512bf16")]] double with_avx512_bf16(int steps, float factor, float& sum) {
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
  const __m512 total =
      ((x0 + x1) + (x2 + x3)) + ((x4 + x5) + (x6 + x7)) + ((x8 + x9) + (x10 + x11));
  sum = sum_of_lanes(total);
  return 2.0 * 12.0 * 32.0 * steps;
}
#endif

/// The widest of them that the CPU has.
Loop float32_loop() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return with_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return with_avx2;
#endif
  return with_128_bits;
}

/// The best of many short runs.
double gflops(Loop loop) {
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
  peak.float32 = gflops(float32_loop());
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512bf16")) peak.bfloat16 = gflops(with_avx512_bf16);
#endif
  return peak;
}

}  // namespace attn::bench
