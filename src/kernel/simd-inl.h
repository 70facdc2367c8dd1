// Vectors, and the functions of one number that softmax needs.

#if defined(ATTN_KERNEL_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_SIMD_INL_H_
#undef ATTN_KERNEL_SIMD_INL_H_
#else
#define ATTN_KERNEL_SIMD_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

template <class T>
constexpr int kLanes = hn::MaxLanes(Tag<T>());

/// Vectors of logits that are worked on together: the accumulators of kRows × NV, NV vectors of
/// queries and one key must fit the registers.
template <int NV>
constexpr int kRows = (HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 16 : 8) / NV;

template <class T>
constexpr T kLowest = std::numeric_limits<T>::lowest();

/// The larger of x and a limit; NaN where x is NaN, which `hn::Max` leaves open.
HWY_INLINE Vec<float> at_least(Vec<float> limit, Vec<float> x) {
  if constexpr (HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128) return hn::Max(limit, x);  // x, if NaN
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
}

/// e^x for x ≤ 0 within 2 ulp; exactly 0 from -88 down; NaN stays NaN.
///
/// x·log2(e) is split into an integer n and a remainder f in [-0.5, 0.5]. Adding 1.5·2^23 + 127
/// leaves n + 127, the exponent of 2^n, in the low bits of the sum; at -88 that is 0, and 2^n reads
/// as 0. The polynomial for 2^f has degree 5 and minimal relative error, 1.7e-7.
HWY_INLINE Vec<float> exp(Tag<float> d, Vec<float> x) {
  const hn::RebindToUnsigned<Tag<float>> du;
  const Vec<float> log2_e = hn::Set(d, 1.44269504f);
  const Vec<float> magic = hn::Set(d, 12582912.0f + 127.0f);
  x = at_least(hn::Set(d, -88.0f), x);
  const Vec<float> shifted = hn::MulAdd(x, log2_e, magic);
  const Vec<float> f = hn::MulSub(x, log2_e, hn::Sub(shifted, magic));
  Vec<float> y = hn::Set(d, 0.00132647273f);
  y = hn::MulAdd(y, f, hn::Set(d, 0.00967151299f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.0555073358f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.240222424f));
  y = hn::MulAdd(y, f, hn::Set(d, 0.693147004f));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0f));
  return hn::Mul(y, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
}

template <class T>
HWY_INLINE Vec<T> keep_nan(Vec<T> x, Vec<T> result) {
  return hn::IfThenElse(hn::IsNaN(x), x, result);
}

HWY_INLINE Vec<double> exp(Tag<double> d, Vec<double> x) {
  return keep_nan<double>(x, hn::Exp(d, x));
}

template <class T>
HWY_INLINE Vec<T> tanh(Tag<T> d, Vec<T> x) {
  return keep_nan<T>(x, hn::Tanh(d, x));
}

/// Whether none of a whole number of vectors is NaN or ∞.
template <class T>
HWY_INLINE bool all_finite(const T* HWY_RESTRICT numbers, int64_t n) {
  const Tag<T> d;
  const Vec<T> zero = hn::Zero(d);
  Vec<T> sum[4] = {zero, zero, zero, zero};  // of 0 · x, which is NaN where x is NaN or ∞
  int64_t i = 0;
  for (; i + 4 * kLanes<T> <= n; i += 4 * kLanes<T>) {
    HWY_UNROLL(4)
    for (int k = 0; k < 4; ++k) {
      sum[k] = hn::MulAdd(zero, hn::Load(d, numbers + i + k * kLanes<T>), sum[k]);
    }
  }
  for (; i < n; i += kLanes<T>) sum[0] = hn::MulAdd(zero, hn::Load(d, numbers + i), sum[0]);
  const Vec<T> all = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  return hn::AllTrue(d, hn::Eq(all, all));
}

/// Whether none of n numbers that lie `width` apart, one lane of a tile, is NaN or ∞.
template <class T>
HWY_INLINE bool lane_is_finite(const T* lane, int64_t n, int64_t width) {
  for (int64_t x = 0; x < n; ++x) {
    if (!std::isfinite(lane[x * width])) return false;
  }
  return true;
}

/// Numbers in a block of 128 bits, within which transposition is cheap.
template <class T>
constexpr int kBlock = 16 / sizeof(T);

/// Transposes the blocks of kBlock vectors, each block on its own.
HWY_INLINE void transpose_blocks(Tag<float> d, Vec<float> (&v)[4]) {
  const Vec<float> lower02 = hn::InterleaveLower(d, v[0], v[2]);
  const Vec<float> lower13 = hn::InterleaveLower(d, v[1], v[3]);
  const Vec<float> upper02 = hn::InterleaveUpper(d, v[0], v[2]);
  const Vec<float> upper13 = hn::InterleaveUpper(d, v[1], v[3]);
  v[0] = hn::InterleaveLower(d, lower02, lower13);
  v[1] = hn::InterleaveUpper(d, lower02, lower13);
  v[2] = hn::InterleaveLower(d, upper02, upper13);
  v[3] = hn::InterleaveUpper(d, upper02, upper13);
}

HWY_INLINE void transpose_blocks(Tag<double> d, Vec<double> (&v)[2]) {
  const Vec<double> lower = hn::InterleaveLower(d, v[0], v[1]);
  v[1] = hn::InterleaveUpper(d, v[0], v[1]);
  v[0] = lower;
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_SIMD_INL_H_
