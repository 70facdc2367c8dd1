// Between the element types of tensors and the type of the sums: every load and store that converts.

#if defined(ATTN_KERNEL_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_ELEMENTS_INL_H_
#undef ATTN_KERNEL_ELEMENTS_INL_H_
#else
#define ATTN_KERNEL_ELEMENTS_INL_H_
#endif

#include <bit>
#include <cstring>

#include "kernel/attention.h"
#include "kernel/half.h"
#include "kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

using BFloat16 = hwy::bfloat16_t;
using Float16 = hwy::float16_t;

HWY_INLINE float to_float(float x) { return x; }
HWY_INLINE double to_float(double x) { return x; }
HWY_INLINE float to_float(BFloat16 x) { return hwy::F32FromBF16(x); }
HWY_INLINE float to_float(Float16 x) { return half_to_float(std::bit_cast<uint16_t>(x)); }

/// Loads a full vector of elements as numbers of the type of the sums.
HWY_INLINE Vec<float> load_as(Tag<float> d, const float* p) { return hn::LoadU(d, p); }
HWY_INLINE Vec<double> load_as(Tag<double> d, const double* p) { return hn::LoadU(d, p); }
HWY_INLINE Vec<float> load_as(Tag<float> d, const BFloat16* p) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<BFloat16, Tag<float>>(), p));
}
// Without an instruction for half precision, Highway knows no ∞ and NaN, and truncates.
constexpr bool kConvertsHalf = HWY_TARGET != HWY_SSE4 && HWY_TARGET != HWY_EMU128;
HWY_INLINE Vec<float> load_as(Tag<float> d, const Float16* p) {
  if constexpr (kConvertsHalf) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Float16, Tag<float>>(), p));
  } else {
    HWY_ALIGN float wide[kLanes<float>];
    for (int i = 0; i < kLanes<float>; ++i) wide[i] = to_float(p[i]);
    return hn::Load(d, wide);
  }
}

/// Rounds a full vector to elements, to nearest and ties to even.
HWY_INLINE void store_as(Tag<float> d, Vec<float> v, float* p) { hn::StoreU(v, d, p); }
HWY_INLINE void store_as(Tag<double> d, Vec<double> v, double* p) { hn::StoreU(v, d, p); }
HWY_INLINE void store_as(Tag<float>, Vec<float> v, BFloat16* p) {
  const hn::RebindToUnsigned<Tag<float>> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const auto quiet_nan = hn::Or(bits, hn::Set(du, 0x400000));
  const auto upper =
      hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet_nan, rounded));
  const hn::Rebind<uint16_t, Tag<float>> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<Tag<float>>(), upper)), d16,
             reinterpret_cast<uint16_t*>(p));
}
HWY_INLINE void store_as(Tag<float> d, Vec<float> v, Float16* p) {
  if constexpr (kConvertsHalf) {
    const hn::Rebind<Float16, Tag<float>> d16;
    hn::StoreU(hn::DemoteTo(d16, v), d16, p);
  } else {
    HWY_ALIGN float wide[kLanes<float>];
    hn::Store(v, d, wide);
    for (int i = 0; i < kLanes<float>; ++i) p[i] = std::bit_cast<Float16>(float_to_half(wide[i]));
  }
}

/// n elements, `stride` apart, to adjacent numbers.
template <class T, class E>
HWY_INLINE void load_row(const E* HWY_RESTRICT from, int64_t stride, int64_t n,
                         T* HWY_RESTRICT to) {
  int64_t i = 0;
  if constexpr (sizeof(T) == sizeof(float) && sizeof(E) <= sizeof(float)) {
    const Tag<T> d;
    if (stride == 1) {
      for (; i + kLanes<T> <= n; i += kLanes<T>) hn::StoreU(load_as(d, from + i), d, to + i);
    }
  }
  for (; i < n; ++i) to[i] = static_cast<T>(to_float(from[i * stride]));
}

HWY_INLINE void from_double(double x, double* to) { *to = x; }
HWY_INLINE void from_double(double x, float* to) { *to = static_cast<float>(x); }
HWY_INLINE void from_double(double x, BFloat16* to) {
  *to = std::bit_cast<BFloat16>(float_to_bfloat16(static_cast<float>(x)));
}
HWY_INLINE void from_double(double x, Float16* to) {
  *to = std::bit_cast<Float16>(float_to_half(static_cast<float>(x)));
}

/// n adjacent numbers to adjacent elements. `from` may be read up to the next full vector.
template <class T, class E>
HWY_INLINE void store_row(const T* HWY_RESTRICT from, int64_t n, E* HWY_RESTRICT to) {
  if constexpr (sizeof(T) == sizeof(E) || (sizeof(T) == sizeof(float) && sizeof(E) < sizeof(T))) {
    const Tag<T> d;
    int64_t i = 0;
    for (; i + kLanes<T> <= n; i += kLanes<T>) store_as(d, hn::LoadU(d, from + i), to + i);
    if (i < n) {
      E last[kLanes<T>];
      store_as(d, hn::LoadU(d, from + i), last);
      std::memcpy(static_cast<void*>(to + i), last, static_cast<size_t>(n - i) * sizeof(E));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) from_double(from[i], to + i);
  }
}

/// Copies rows × columns elements, from `row` and `column` strides, to numbers in rows `to_row` apart.
template <class T, class E>
HWY_NOINLINE void load_rows(const E* from, int64_t row, int64_t column, int64_t rows,
                            int64_t columns, T* HWY_RESTRICT to, int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i) load_row(from + i * row, column, columns, to + i * to_row);
}

template <class T>
HWY_INLINE void load_rows(Element element, const void* from, int64_t row, int64_t column,
                          int64_t rows, int64_t columns, T* to, int64_t to_row) {
  switch (element) {
    case Element::kFloat32:
      return load_rows(static_cast<const float*>(from), row, column, rows, columns, to, to_row);
    case Element::kFloat64:
      return load_rows(static_cast<const double*>(from), row, column, rows, columns, to, to_row);
    case Element::kBFloat16:
      return load_rows(static_cast<const BFloat16*>(from), row, column, rows, columns, to, to_row);
    case Element::kFloat16:
      return load_rows(static_cast<const Float16*>(from), row, column, rows, columns, to, to_row);
  }
}

/// Rounds rows × columns numbers to elements; columns are adjacent on both sides.
template <class T>
HWY_INLINE void store_rows(Element element, const T* from, int64_t from_row, int64_t rows,
                           int64_t columns, void* to, int64_t to_row) {
  for (int64_t i = 0; i < rows; ++i, from += from_row) {
    if (element == Element::kFloat64) {
      store_row(from, columns, static_cast<double*>(to) + i * to_row);
    } else if (element == Element::kFloat32) {
      store_row(from, columns, static_cast<float*>(to) + i * to_row);
    } else if (element == Element::kBFloat16) {
      store_row(from, columns, static_cast<BFloat16*>(to) + i * to_row);
    } else {
      store_row(from, columns, static_cast<Float16*>(to) + i * to_row);
    }
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_ELEMENTS_INL_H_
