// What is summed over many tiles of queries: the gradients of keys, values and bias.

#if defined(ATTN_KERNEL_GRADIENT_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_GRADIENT_SUMS_INL_H_
#undef ATTN_KERNEL_GRADIENT_SUMS_INL_H_
#else
#define ATTN_KERNEL_GRADIENT_SUMS_INL_H_
#endif

#include <algorithm>

#include "kernel/attention.h"
#include "kernel/elements-inl.h"
#include "kernel/gradient_cut.h"
#include "kernel/gradient_products-inl.h"
#include "kernel/mask-inl.h"
#include "kernel/space.h"
#include "kernel/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// The gradient of the keys, or of the values, [first, last) of one head, in the type of the sums. It
/// grows where it will stay if it can, else in scratch, and is rounded once.
template <class Math>
class RowSums {
  using T = typename Math::Sum;

 public:
  RowSums(const Problem& p, const GradientView& view, int64_t columns, int64_t first, int64_t last,
          Space& space)
      : element_(p.element), view_(view), columns_(columns), first_(first), last_(last) {
    if (!asked()) return;
    in_place_ = size_of(element_) == sizeof(T) && columns % kLanes<T> == 0;
    row_ = in_place_ ? view.row : whole_vectors<T>(columns);
    if (!in_place_) sums_ = space.take<T>((last - first) * row_);
    fresh_ = space.take<bool>(groups());
  }

  bool asked() const { return view_.data != nullptr; }

  void start(int64_t b, int64_t head) {
    if (!asked()) return;
    to_ = static_cast<char*>(view_.data) +
          (b * view_.batch + head * view_.head + first_ * view_.row) * size_of(element_);
    if (in_place_) sums_ = reinterpret_cast<T*>(to_);
    std::fill_n(fresh_, groups(), true);
  }

  /// Adds what tiles of queries give to the n keys of a group.
  template <int kWidth>
  HWY_INLINE void add(const TileFactor<typename Math::Key>* tiles, int count, int64_t key,
                      int64_t n) {
    bool& fresh = fresh_[(key - first_) / kGroup];
    Math::template add_products<kWidth>(tiles, count, n, columns_, fresh,
                                        sums_ + (key - first_) * row_, row_);
    fresh = false;
  }

  void finish() {
    if (!asked()) return;
    for (int64_t g = 0; g < groups(); ++g) {
      if (!fresh_[g]) continue;
      const int64_t end = std::min((g + 1) * kGroup, last_ - first_);
      for (int64_t j = g * kGroup; j < end; ++j) std::fill_n(sums_ + j * row_, columns_, T(0));
    }
    if (!in_place_) {
      store_rows(element_, sums_, row_, last_ - first_, columns_, to_, view_.row);
    }
  }

 private:
  int64_t groups() const { return (last_ - first_ + kGroup - 1) / kGroup; }

  const Element element_;
  const GradientView& view_;
  const int64_t columns_, first_, last_;
  bool in_place_ = false;
  int64_t row_ = 0;
  T* sums_ = nullptr;
  bool* fresh_ = nullptr;  ///< groups of keys that nothing was added to
  char* to_ = nullptr;
};

/// The gradient of the bias that one chain of units adds to: [heads of a unit, or 1][rows][columns].
template <class T>
class BiasSums {
 public:
  BiasSums(const Problem& p, const BiasGradient& bias, int64_t first_key, int64_t last_key, T* sums)
      : bias_(bias),
        heads_(bias.heads != p.heads ? 1 : p.heads / p.key_heads),
        over_rows_(bias.rows != p.queries),
        over_columns_(bias.columns != p.keys),
        sums_(sums) {
    if (!asked()) return;
    const int64_t first = over_columns_ ? 0 : first_key;
    const int64_t last = over_columns_ ? bias.columns : last_key;
    for (int64_t row = 0; row < heads_ * bias.rows; ++row) {
      std::fill(sums_ + row * bias.columns + first, sums_ + row * bias.columns + last, T(0));
    }
  }

  bool asked() const { return bias_.data != nullptr; }

  /// Fetches what `add` is going to write.
  HWY_INLINE void prefetch(int64_t head_of_unit, int64_t query, int64_t queries, int64_t key,
                           int64_t n) const {
    if (over_rows_ || over_columns_) return;
    constexpr int64_t kStep = kAlignment / static_cast<int64_t>(sizeof(T));
    const T* row = at(head_of_unit, query, key);
    for (int64_t i = 0; i < queries; ++i, row += bias_.columns) {
      for (int64_t j = 0; j < n; j += kStep) __builtin_prefetch(row + j, /*for writing*/ 1);
    }
  }

  /// Adds the gradients of the logits of a tile of queries and the keys [key, key + n).
  template <int NV>
  HWY_INLINE void add(int64_t head_of_unit, int64_t query, int64_t queries, int64_t key, int64_t n,
                      const T* HWY_RESTRICT gradients, T* HWY_RESTRICT scratch) {
    constexpr int kWidth = NV * kLanes<T>;
    T* to = at(head_of_unit, query, key);
    if (over_columns_) {
      for (int64_t i = 0; i < queries; ++i) {
        T sum = 0;
        for (int64_t j = 0; j < n; ++j) sum += gradients[j * kWidth + i];
        to[over_rows_ ? 0 : i] += sum;
      }
      return;
    }
    if (over_rows_) {
      for (int64_t j = 0; j < n; ++j) {
        T sum = 0;
        for (int64_t i = 0; i < queries; ++i) sum += gradients[j * kWidth + i];
        to[j] += sum;
      }
      return;
    }
    const Tag<T> d;
    HWY_ALIGN T ones[kWidth];
    std::fill_n(ones, kWidth, T(1));
    tile_to_rows<NV>(gradients, ones, queries, n, scratch, kScratchRow);
    for (int64_t i = 0; i < queries; ++i, to += bias_.columns) {
      const T* from = scratch + i * kScratchRow;
      int64_t j = 0;
      for (; j + kLanes<T> <= n; j += kLanes<T>) {
        hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, from + j)), d, to + j);
      }
      for (; j < n; ++j) to[j] += from[j];
    }
  }

  /// Numbers between the rows of `add`'s scratch, which do not evict each other from the L1 cache.
  static constexpr int64_t kScratchRow = kKeyBlock + kBlock<T>;

 private:
  T* at(int64_t head_of_unit, int64_t query, int64_t key) const {
    const int64_t head = heads_ == 1 ? 0 : head_of_unit;
    return sums_ + (head * bias_.rows + (over_rows_ ? 0 : query)) * bias_.columns +
           (over_columns_ ? 0 : key);
  }

  const BiasGradient& bias_;
  const int64_t heads_;
  const bool over_rows_, over_columns_;
  T* const sums_;
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_GRADIENT_SUMS_INL_H_
