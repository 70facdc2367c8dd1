// The products that sum over queries, dV = Pᵀ · dO and dK = dUᵀ · Q, in float32 or float64: one number of
// Pᵀ or dUᵀ, as the tiles left it, is broadcast against vectors of features.

#if defined(ATTN_KERNEL_GRADIENT_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_GRADIENT_PRODUCTS_INL_H_
#undef ATTN_KERNEL_GRADIENT_PRODUCTS_INL_H_
#else
#define ATTN_KERNEL_GRADIENT_PRODUCTS_INL_H_
#endif

#include "kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// n, rounded up to whole vectors.
template <class T>
constexpr int64_t whole_vectors(int64_t n) {
  return (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}

/// What one tile of queries adds to the gradient of keys or values.
template <class Number>
struct TileFactor {
  const Number* left;   ///< [keys][kWidth], queries in the lanes
  const Number* right;  ///< [queries][features], rows padded to whole vectors
  int64_t queries;
};

/// The sums of the tiles for rows `to_row` apart, on top of what is there unless `fresh`.
template <int kRowCount, int NF, class T>
HWY_INLINE void add_rows(const TileFactor<T>* HWY_RESTRICT tiles, int count, int64_t width,
                         int64_t right_row, int64_t key, int64_t n, int64_t feature, bool fresh,
                         T* HWY_RESTRICT to, int64_t to_row) {
  const Tag<T> d;
  while (n >= kRowCount) {
    Vec<T> sum[kRowCount][NF];
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NF; ++v) sum[r][v] = hn::Zero(d);
    }
    for (int t = 0; t < count; ++t) {
      const T* HWY_RESTRICT left = tiles[t].left + key * width;
      const T* HWY_RESTRICT right = tiles[t].right + feature;
      for (int64_t q = 0; q < tiles[t].queries; ++q, right += right_row) {
        Vec<T> row[NF];
        for (int v = 0; v < NF; ++v) row[v] = hn::Load(d, right + v * kLanes<T>);
        HWY_UNROLL(16)
        for (int r = 0; r < kRowCount; ++r) {
          const Vec<T> number = hn::Set(d, left[r * width + q]);
          for (int v = 0; v < NF; ++v) sum[r][v] = hn::MulAdd(number, row[v], sum[r][v]);
        }
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NF; ++v) {
        T* total = to + r * to_row + v * kLanes<T>;
        if (!fresh) sum[r][v] = hn::Add(hn::LoadU(d, total), sum[r][v]);
        hn::StoreU(sum[r][v], d, total);
      }
    }
    key += kRowCount;
    to += kRowCount * to_row;
    n -= kRowCount;
  }
  if constexpr (kRowCount > 1) {
    add_rows<kRowCount / 2, NF>(tiles, count, width, right_row, key, n, feature, fresh, to, to_row);
  }
}

/// The same for all features, a whole number of vectors.
template <int NF, class T>
HWY_INLINE void add_features(const TileFactor<T>* HWY_RESTRICT tiles, int count, int64_t width,
                             int64_t right_row, int64_t key, int64_t n, int64_t features,
                             int64_t feature, bool fresh, T* HWY_RESTRICT to, int64_t to_row) {
  for (; feature + NF * kLanes<T> <= features; feature += NF * kLanes<T>) {
    add_rows<kRows<NF>, NF>(tiles, count, width, right_row, key, n, feature, fresh, to + feature,
                            to_row);
  }
  if constexpr (NF > 1) {
    add_features<NF / 2>(tiles, count, width, right_row, key, n, features, feature, fresh, to,
                         to_row);
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_GRADIENT_PRODUCTS_INL_H_
