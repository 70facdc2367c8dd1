// Additive biases. A piece of 32 keys × the tile's queries is copied to a padded buffer and transposed
// there: read down its columns where it lies, rows 4 KiB apart would evict each other from the L1 cache.

#if defined(ATTN_KERNEL_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_BIAS_INL_H_
#undef ATTN_KERNEL_BIAS_INL_H_
#else
#define ATTN_KERNEL_BIAS_INL_H_
#endif

#include <algorithm>

#include "kernel/elements-inl.h"
#include "kernel/mask-inl.h"
#include "kernel/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// The bias of one batch and head.
class RowBias {
 public:
  RowBias(const Problem& problem, int64_t b, int64_t h)
      : view_(problem.bias), element_(problem.bias_element) {
    if (view_.data != nullptr) {
      first_ = at(static_cast<const char*>(view_.data), b * view_.batch + h * view_.head);
    }
  }

  bool any() const { return first_ != nullptr; }

  /// Numbers that `add` needs as scratch.
  template <class T, int NV>
  static constexpr int64_t kScratch = NV* kLanes<T>*(kGroup + kBlock<T>);

  HWY_INLINE void prefetch(int64_t query, int64_t queries, int64_t key, int64_t n) const {
    if (view_.row == 0 || view_.column != 1) return;
    const int64_t step = kAlignment / size_of(element_);
    for (int64_t i = 0; i < queries; ++i) {
      for (int64_t t = 0; t < n; t += step) {
        __builtin_prefetch(at(first_, (query + i) * view_.row + key + t));
      }
    }
  }

  /// The bias of the keys [key, key + n) for one query.
  template <class T>
  void load(int64_t query, int64_t key, int64_t n, T* to) const {
    load_rows(element_, at(first_, query * view_.row + key * view_.column), view_.row, view_.column,
              1, n, to, n);
  }

  /// Adds the bias of the keys [key, key + n) to the logits and raises `top` to the largest logit of
  /// each lane. A bias of −∞ blocks its key, whatever the logit was.
  template <int NV, class T>
  HWY_INLINE void add(int64_t query, int64_t queries, int64_t key, int64_t n,
                      T* HWY_RESTRICT scratch, T* HWY_RESTRICT logits, Vec<T> (&top)[NV]) const {
    constexpr int kWidth = NV * kLanes<T>;
    for (int64_t j = 0; j < n; j += kGroup) {
      const int64_t keys = std::min<int64_t>(kGroup, n - j);
      const int64_t rows = view_.row == 0 ? 1 : queries;
      load_rows(element_, at(first_, query * view_.row + (key + j) * view_.column), view_.row,
                view_.column, rows, keys, scratch, kGroup + kBlock<T>);
      if (rows == kWidth) {
        add_piece<NV>(scratch, AllRows<NV, T>(), keys, logits + j * kWidth, top);
      } else {
        add_piece<NV>(scratch, rows, keys, logits + j * kWidth, top);
      }
    }
  }

 private:
  const char* at(const char* from, int64_t elements) const {
    return from + elements * size_of(element_);
  }

  template <int NV, class T>
  HWY_INLINE static void add_number(Vec<T> bias, T* HWY_RESTRICT logit, Vec<T>& top) {
    const Tag<T> d;
    const Vec<T> minus_infinity = hn::Set(d, -std::numeric_limits<T>::infinity());
    const Vec<T> x =
        hn::IfThenElse(hn::Eq(bias, minus_infinity), bias, hn::Add(bias, hn::Load(d, logit)));
    hn::Store(x, d, logit);
    top = hn::Max(top, x);
  }

  template <int NV, class T, class Count>
  HWY_INLINE static void add_piece(const T* HWY_RESTRICT piece, Count rows, int64_t keys,
                                   T* HWY_RESTRICT logits, Vec<T> (&top)[NV]) {
    const Tag<T> d;
    constexpr int64_t kStride = kGroup + kBlock<T>;
    int64_t t = 0;
    if (rows > 1) {
      for (; t + kBlock<T> <= keys; t += kBlock<T>) {
        for (int v = 0; v < NV; ++v) {
          Vec<T> block[kBlock<T>];
          for (int k = 0; k < kBlock<T>; ++k) {
            block[k] = load_blocks(d, piece + t, kStride, v * kLanes<T> + k, rows - 1);
          }
          transpose_blocks(d, block);
          for (int k = 0; k < kBlock<T>; ++k) {
            add_number<NV>(block[k], logits + ((t + k) * NV + v) * kLanes<T>, top[v]);
          }
        }
      }
    }
    for (; t < keys; ++t) {
      HWY_ALIGN T column[NV * kLanes<T>];
      for (int64_t i = 0; i < NV * kLanes<T>; ++i) {
        column[i] = piece[std::min<int64_t>(i, rows - 1) * kStride + t];
      }
      for (int v = 0; v < NV; ++v) {
        add_number<NV>(hn::Load(d, column + v * kLanes<T>), logits + (t * NV + v) * kLanes<T>,
                       top[v]);
      }
    }
  }

  const View& view_;
  Element element_;
  const char* first_ = nullptr;
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_BIAS_INL_H_
