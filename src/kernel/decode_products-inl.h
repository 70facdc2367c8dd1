// The two products of decoding in the type of the sums: the lanes run over the features of one key.

#if defined(ATTN_KERNEL_DECODE_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_DECODE_PRODUCTS_INL_H_
#undef ATTN_KERNEL_DECODE_PRODUCTS_INL_H_
#else
#define ATTN_KERNEL_DECODE_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernel/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Keys whose logits are worked on together.
constexpr int kDecodeBlock = 128;
/// Keys ahead that are asked for; about what memory delivers in its latency.
constexpr int64_t kAhead = 64;
/// Queries that read the keys together: the accumulators of rows × 4 vectors must fit the registers.
constexpr int kDecodeRows = HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON ? 4 : 2;

/// Loads the first n < lanes elements and zeros.
template <class T, class E>
HWY_INLINE Vec<T> load_first(Tag<T> d, const E* p, int64_t n) {
  E elements[kLanes<T>] = {};
  std::memcpy(static_cast<void*>(elements), p, static_cast<size_t>(n) * sizeof(E));
  return load_as(d, elements);
}

template <class E>
HWY_INLINE void prefetch_row(const E* row, int64_t n) {
  const auto* line = reinterpret_cast<const char*>(row);
  const auto* end = reinterpret_cast<const char*>(row + n);
  for (; line < end; line += kAlignment) __builtin_prefetch(line);
}

/// Adds up the 128-bit blocks of a vector.
template <class D>
HWY_INLINE auto fold_blocks([[maybe_unused]] D d, hn::Vec<D> v) {
  if constexpr (sizeof(hn::TFromD<D>) * hn::MaxLanes(D()) <= 16) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// The sums of the lanes of four vectors.
HWY_INLINE void store_sums(Tag<float> d, Vec<float> a, Vec<float> b, Vec<float> c, Vec<float> e,
                           float* sums) {
  const Vec<float> ac =
      hn::Add(hn::InterleaveLower(d, a, c), hn::InterleaveUpper(d, a, c));  // a c a c
  const Vec<float> be = hn::Add(hn::InterleaveLower(d, b, e), hn::InterleaveUpper(d, b, e));
  const Vec<float> all =
      hn::Add(hn::InterleaveLower(d, ac, be), hn::InterleaveUpper(d, ac, be));  // a b c e
  const hn::CappedTag<float, 4> d4;
  hn::StoreU(fold_blocks(d, all), d4, sums);
}
HWY_INLINE void store_sums(Tag<double> d, Vec<double> a, Vec<double> b, Vec<double> c,
                           Vec<double> e, double* sums) {
  sums[0] = hn::GetLane(hn::SumOfLanes(d, a));
  sums[1] = hn::GetLane(hn::SumOfLanes(d, b));
  sums[2] = hn::GetLane(hn::SumOfLanes(d, c));
  sums[3] = hn::GetLane(hn::SumOfLanes(d, e));
}

/// Products of elements E, converted, in the type T of the sums.
template <class T, class E>
struct SumTypeProducts {
  using Sum = T;
  using Element = E;
  using Query = T;
  static constexpr int64_t kQueryLanes = kLanes<T>;

  /// Scales a query.
  static void load_query(const Problem& p, const E* from, T* to) {
    load_row(from, p.query.column, p.head_dim, to);
    for (int64_t x = 0; x < p.head_dim; ++x) to[x] *= static_cast<T>(p.scale);
  }

  /// Logits of R queries, rows `query_stride` apart and padded with zeros, and n keys.
  template <int R>
  HWY_INLINE static void logits(const Problem& p, const E* HWY_RESTRICT keys, int64_t n,
                                const T* HWY_RESTRICT queries, int64_t query_stride, bool prefetch,
                                T* HWY_RESTRICT logits) {
    const Tag<T> d;
    const int64_t whole = p.head_dim / kLanes<T> * kLanes<T>;
    for (int64_t j = 0; j < n; j += 4) {
      const E* rows[4];
      for (int u = 0; u < 4; ++u) {
        rows[u] = keys + std::min(j + u, n - 1) * p.key.row;
        if (prefetch) prefetch_row(rows[u] + kAhead * p.key.row, p.head_dim);
      }
      Vec<T> sum[R][4];
      for (int r = 0; r < R; ++r) {
        for (int u = 0; u < 4; ++u) sum[r][u] = hn::Zero(d);
      }
      int64_t x = 0;
      for (; x < whole; x += kLanes<T>) {
        for (int u = 0; u < 4; ++u) {
          const Vec<T> key = load_as(d, rows[u] + x);
          for (int r = 0; r < R; ++r) {
            sum[r][u] = hn::MulAdd(key, hn::Load(d, queries + r * query_stride + x), sum[r][u]);
          }
        }
      }
      if (x < p.head_dim) {
        for (int u = 0; u < 4; ++u) {
          const Vec<T> key = load_first<T>(d, rows[u] + x, p.head_dim - x);
          for (int r = 0; r < R; ++r) {
            sum[r][u] = hn::MulAdd(key, hn::Load(d, queries + r * query_stride + x), sum[r][u]);
          }
        }
      }
      for (int r = 0; r < R; ++r) {
        store_sums(d, sum[r][0], sum[r][1], sum[r][2], sum[r][3], logits + r * kDecodeBlock + j);
      }
    }
  }

  /// Adds values · weights of n keys to R outputs.
  template <int R>
  HWY_INLINE static void output(const Problem& p, const E* HWY_RESTRICT values, int64_t n,
                                const T* HWY_RESTRICT weights, bool prefetch,
                                T* HWY_RESTRICT outputs, int64_t output_stride) {
    constexpr int kWide = std::min(8, 4 * kDecodeRows / R);
    int64_t x =
        add_all_columns<R, kWide>(0, p, values, n, weights, prefetch, outputs, output_stride);
    for (; x < p.value_dim; ++x) {
      for (int r = 0; r < R; ++r) {
        T sum = 0;
        for (int64_t j = 0; j < n; ++j) {
          const auto value = static_cast<T>(to_float(values[j * p.value.row + x]));
          sum += weights[r * kDecodeBlock + j] * value;
        }
        outputs[r * output_stride + x] += sum;
      }
    }
  }

 private:
  /// Columns from x on, NX vectors at a time, half as many for what is left, and so on; returns the
  /// first column that no vector covers.
  template <int R, int NX>
  HWY_INLINE static int64_t add_all_columns(int64_t x, const Problem& p, const E* values, int64_t n,
                                            const T* weights, bool prefetch, T* outputs,
                                            int64_t output_stride) {
    for (; x + NX * kLanes<T> <= p.value_dim; x += NX * kLanes<T>) {
      add_columns<R, NX>(values + x, p.value.row, n, weights, prefetch, outputs + x, output_stride);
    }
    if constexpr (NX > 1) {
      x = add_all_columns<R, NX / 2>(x, p, values, n, weights, prefetch, outputs, output_stride);
    }
    return x;
  }

  template <int R, int NX>
  HWY_INLINE static void add_columns(const E* HWY_RESTRICT values, int64_t stride, int64_t n,
                                     const T* HWY_RESTRICT weights, bool prefetch,
                                     T* HWY_RESTRICT outputs, int64_t output_stride) {
    const Tag<T> d;
    Vec<T> sum[R][NX];
    for (int r = 0; r < R; ++r) {
      for (int x = 0; x < NX; ++x) sum[r][x] = hn::Zero(d);
    }
    HWY_UNROLL(2)
    for (int64_t j = 0; j < n; ++j) {
      const E* row = values + j * stride;
      if (prefetch) prefetch_row(row + kAhead * stride, NX * kLanes<T>);
      Vec<T> value[NX];
      for (int x = 0; x < NX; ++x) value[x] = load_as(d, row + x * kLanes<T>);
      for (int r = 0; r < R; ++r) {
        const Vec<T> weight = hn::Set(d, weights[r * kDecodeBlock + j]);
        for (int x = 0; x < NX; ++x) sum[r][x] = hn::MulAdd(weight, value[x], sum[r][x]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int x = 0; x < NX; ++x) {
        T* total = outputs + r * output_stride + x * kLanes<T>;
        hn::StoreU(hn::Add(hn::LoadU(d, total), sum[r][x]), d, total);
      }
    }
  }
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_DECODE_PRODUCTS_INL_H_
