// How the gradients multiply in the type of the sums.

#if defined(ATTN_KERNEL_GRADIENT_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_GRADIENT_MATH_INL_H_
#undef ATTN_KERNEL_GRADIENT_MATH_INL_H_
#else
#define ATTN_KERNEL_GRADIENT_MATH_INL_H_
#endif

#include <algorithm>

#include "kernel/elements-inl.h"
#include "kernel/gradient_products-inl.h"
#include "kernel/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

template <class T>
struct SumTypeGradientMath : SumTypeMath<T> {
  /// Queries whose tiles share a block of keys.
  static constexpr int kGroupQueries = 128;
  /// Whether dQ reads keys and gradients in pairs of keys, not as the other products read them.
  static constexpr bool kPairsKeys = false;

  /// Rows of queries as the sums over queries read them: padded to whole vectors, and apart so that
  /// they do not evict each other from the L1 cache.
  static constexpr int64_t right_row(int64_t columns) {
    return whole_vectors<T>(columns) + kLanes<T>;
  }
  static constexpr int64_t right_rows(int64_t queries) { return queries; }
  static void stage_right(const Problem& p, const View& view, const void* from, int64_t queries,
                          int64_t columns, T* to) {
    const int64_t row = right_row(columns);
    load_rows(p.element, from, view.row, view.column, queries, columns, to, row);
    const int64_t pad = whole_vectors<T>(columns) - columns;
    for (int64_t i = 0; i < queries; ++i) std::fill_n(to + i * row + columns, pad, T(0));
  }

  /// Weights and gradients of n keys are rounded, in place, as the products read them.
  template <int NV>
  static void round_weights(int64_t /*n*/, T* /*weights*/) {}
  template <int NV>
  static void round_gradients(int64_t /*n*/, T* /*gradients*/, T* /*pairs*/) {}
  static const T* rounded(const T* numbers) { return numbers; }

  template <int kWidth>
  HWY_INLINE static void add_products(const TileFactor<T>* tiles, int count, int64_t n,
                                      int64_t columns, bool fresh, T* to, int64_t to_row) {
    add_features<4>(tiles, count, kWidth, right_row(columns), 0, n, whole_vectors<T>(columns), 0,
                    fresh, to, to_row);
  }
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_GRADIENT_MATH_INL_H_
