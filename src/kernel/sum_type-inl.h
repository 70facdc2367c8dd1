// Arithmetic of the tiles in the type of the sums, float32 or float64.

#if defined(ATTN_KERNEL_SUM_TYPE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_SUM_TYPE_INL_H_
#undef ATTN_KERNEL_SUM_TYPE_INL_H_
#else
#define ATTN_KERNEL_SUM_TYPE_INL_H_
#endif

#include <algorithm>

#include "kernel/dropout-inl.h"
#include "kernel/elements-inl.h"
#include "kernel/products-inl.h"
#include "kernel/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Arithmetic in the type of the sums: keys and values are read where they lie, or, where their
/// elements are of another type or not adjacent, copied block by block.
template <class T>
struct SumTypeMath {
  using Sum = T;
  using Key = T;
  using Value = T;

  /// Whether the products read rows where they lie.
  static bool in_place(const Problem& p, const View& rows, int64_t /*columns*/) {
    return size_of(p.element) == sizeof(T) && rows.column == 1;
  }
  static bool keys_in_place(const Problem& p) { return in_place(p, p.key, p.head_dim); }
  static bool values_in_place(const Problem& p) { return in_place(p, p.value, p.value_dim); }
  /// Numbers in a row of so many columns as `logits` reads it.
  static int64_t row_numbers(int64_t columns) { return columns; }

  /// Rows from `from` on to a tile with the rows in the lanes, times `scale`.
  template <int NV>
  HWY_INLINE static void load_tile(const Problem& p, const View& view, const void* from,
                                   int64_t rows, int64_t columns, double scale,
                                   T* HWY_RESTRICT scratch, T* HWY_RESTRICT tile) {
    const T factor = static_cast<T>(scale);
    if (size_of(p.element) == sizeof(T) && view.column == 1 && !rows_collide<T>(rows, view.row)) {
      rows_to_tile<NV, false>(static_cast<const T*>(from), view.row, rows, columns, factor, tile);
      return;
    }
    const int64_t stride = columns + kBlock<T>;
    load_rows(p.element, from, view.row, view.column, rows, columns, scratch, stride);
    rows_to_tile<NV, false>(scratch, stride, rows, columns, factor, tile);
  }

  static void stage_rows(const Problem& p, const View& view, const void* from, int64_t n,
                         int64_t columns, T* to) {
    load_rows(p.element, from, view.row, view.column, n, columns, to, columns);
  }
  static void stage_keys(const Problem& p, const void* from, int64_t n, T* to) {
    stage_rows(p, p.key, from, n, p.head_dim, to);
  }
  static void stage_values(const Problem& p, const void* from, int64_t n, T* to) {
    stage_rows(p, p.value, from, n, p.value_dim, to);
  }

  /// Products of n rows of so many columns with a tile that was loaded with `scale`.
  template <int NV>
  HWY_INLINE static void logits(const T* rows, int64_t stride, int64_t n, const T* tile,
                                int64_t columns, double /*scale*/, T* logits) {
    logits_of_rows<kRows<NV>, NV>(rows, stride, n, tile, columns, logits);
  }

  /// Turns logits into weights e^(logit − top), in place, and adds them to `sum`.
  template <int NV>
  HWY_INLINE static void weights(int64_t n, const Vec<T> (&top)[NV], T* HWY_RESTRICT logits,
                                 Vec<T> (&sum)[NV]) {
    const Tag<T> d;
    Vec<T> odd[NV];
    for (int v = 0; v < NV; ++v) odd[v] = hn::Zero(d);
    int64_t j = 0;
    for (; j + 2 <= n; j += 2) {
      for (int v = 0; v < NV; ++v) {
        T* logit = logits + (j * NV + v) * kLanes<T>;
        sum[v] = hn::Add(sum[v], to_weight(top[v], logit));
        odd[v] = hn::Add(odd[v], to_weight(top[v], logit + NV * kLanes<T>));
      }
    }
    for (int v = 0; v < NV; ++v) {
      if (j < n) sum[v] = hn::Add(sum[v], to_weight(top[v], logits + (j * NV + v) * kLanes<T>));
      sum[v] = hn::Add(sum[v], odd[v]);
    }
  }

  /// Zeroes the weights that are not kept.
  template <int NV>
  HWY_INLINE static void drop(const KeptKeys<T, NV>& kept, int64_t n, T* HWY_RESTRICT weights) {
    const Tag<T> d;
    const hn::RebindToUnsigned<Tag<T>> du;
    for (int64_t j = 0; j < n; j += kGroup) {
      hn::Vec<decltype(du)> words[NV];
      for (int v = 0; v < NV; ++v) words[v] = hn::Load(du, kept.words[j / kGroup] + v * kLanes<T>);
      for (int64_t t = 0; t < std::min<int64_t>(kGroup, n - j); ++t) {
        const auto bit = hn::Set(du, KeptKeys<T, NV>::bit(t));
        for (int v = 0; v < NV; ++v) {
          T* weight = weights + ((j + t) * NV + v) * kLanes<T>;
          const auto keeps = hn::RebindMask(d, hn::TestBit(words[v], bit));
          hn::Store(hn::IfThenElseZero(keeps, hn::Load(d, weight)), d, weight);
        }
      }
    }
  }

  template <int NV>
  HWY_INLINE static void output(const T* values, int64_t stride, int64_t n, int64_t columns,
                                const T* weights, const Vec<T> (&decay)[NV], bool fresh,
                                T* output) {
    output_of_rows<kRows<NV>, NV>(values, stride, n, weights, columns, decay, fresh, output);
  }

 private:
  HWY_INLINE static Vec<T> to_weight(Vec<T> top, T* HWY_RESTRICT logit) {
    const Tag<T> d;
    const Vec<T> weight = exp(d, hn::Sub(hn::Load(d, logit), top));
    hn::Store(weight, d, logit);
    return weight;
  }
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_SUM_TYPE_INL_H_
