// The two products of attention on a tile of queries: Sᵀ = K · Qᵀ and Oᵀ = Vᵀ · Pᵀ, in float32 or float64.
//
// Keys and values are read number by number from where they lie, and each is broadcast against NV
// vectors of queries; so rows may have any distance and any length, and nothing is packed but Q.

#if defined(ATTN_KERNEL_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_PRODUCTS_INL_H_
#undef ATTN_KERNEL_PRODUCTS_INL_H_
#else
#define ATTN_KERNEL_PRODUCTS_INL_H_
#endif

#include "kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Logits of kRowCount keys at a time, of half as many for what is left, and so on.
template <int kRowCount, int NV, class T>
HWY_INLINE void logits_of_rows(const T* HWY_RESTRICT keys, int64_t stride, int64_t n,
                               const T* HWY_RESTRICT query_tile, int64_t head_dim,
                               T* HWY_RESTRICT logits) {
  const Tag<T> d;
  constexpr int kWidth = NV * kLanes<T>;
  while (n >= kRowCount) {
    Vec<T> sum[kRowCount][NV];
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NV; ++v) sum[r][v] = hn::Zero(d);
    }
    for (int64_t x = 0; x < head_dim; ++x) {
      Vec<T> query[NV];
      for (int v = 0; v < NV; ++v) query[v] = hn::Load(d, query_tile + x * kWidth + v * kLanes<T>);
      HWY_UNROLL(16)
      for (int r = 0; r < kRowCount; ++r) {
        const Vec<T> key = hn::Set(d, keys[r * stride + x]);
        for (int v = 0; v < NV; ++v) sum[r][v] = hn::MulAdd(key, query[v], sum[r][v]);
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NV; ++v) hn::Store(sum[r][v], d, logits + r * kWidth + v * kLanes<T>);
    }
    keys += kRowCount * stride;
    logits += kRowCount * kWidth;
    n -= kRowCount;
  }
  if constexpr (kRowCount > 1) {
    logits_of_rows<kRowCount / 2, NV>(keys, stride, n, query_tile, head_dim, logits);
  }
}

/// Adds values · weights of n keys to the output tile, which is first scaled by `decay`; a `fresh`
/// tile is not read. The block is summed up on its own: many small sums err less than one long one.
template <int kRowCount, int NV, class T>
HWY_INLINE void output_of_rows(const T* HWY_RESTRICT values, int64_t stride, int64_t n,
                               const T* HWY_RESTRICT weights, int64_t value_dim,
                               const Vec<T> (&decay)[NV], bool fresh, T* HWY_RESTRICT output) {
  const Tag<T> d;
  constexpr int kWidth = NV * kLanes<T>;
  while (value_dim >= kRowCount) {
    Vec<T> sum[kRowCount][NV];
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NV; ++v) sum[r][v] = hn::Zero(d);
    }
    for (int64_t j = 0; j < n; ++j) {
      Vec<T> weight[NV];
      for (int v = 0; v < NV; ++v) weight[v] = hn::Load(d, weights + j * kWidth + v * kLanes<T>);
      HWY_UNROLL(16)
      for (int r = 0; r < kRowCount; ++r) {
        const Vec<T> value = hn::Set(d, values[j * stride + r]);
        for (int v = 0; v < NV; ++v) sum[r][v] = hn::MulAdd(value, weight[v], sum[r][v]);
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NV; ++v) {
        T* total = output + r * kWidth + v * kLanes<T>;
        if (!fresh) sum[r][v] = hn::MulAdd(decay[v], hn::Load(d, total), sum[r][v]);
        hn::Store(sum[r][v], d, total);
      }
    }
    values += kRowCount;
    output += kRowCount * kWidth;
    value_dim -= kRowCount;
  }
  if constexpr (kRowCount > 1) {
    output_of_rows<kRowCount / 2, NV>(values, stride, n, weights, value_dim, decay, fresh, output);
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_PRODUCTS_INL_H_
