// The gradients of bfloat16 with AVX512_BF16: weights and gradients of the logits are rounded to bfloat16
// for the products, which add up in float32. Sums over queries take queries in pairs, dQ keys in pairs.

#if defined(ATTN_KERNEL_BF16_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_BF16_GRADIENTS_INL_H_
#undef ATTN_KERNEL_BF16_GRADIENTS_INL_H_
#else
#define ATTN_KERNEL_BF16_GRADIENTS_INL_H_
#endif

#include "kernel/bf16-inl.h"
#include "kernel/gradient_products-inl.h"
#include "kernel/simd-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

HWY_BEFORE_NAMESPACE();
HWY_PUSH_ATTRIBUTES("avx512bf16")
namespace attn::kernel::HWY_NAMESPACE {

template <int kRowCount, int NF>
HWY_INLINE void bf16_add_rows(const TileFactor<BFloat16>* HWY_RESTRICT tiles, int count,
                              int64_t width, int64_t right_row, int64_t key, int64_t n,
                              int64_t feature, bool fresh, float* HWY_RESTRICT to, int64_t to_row) {
  while (n >= kRowCount) {
    __m512 sum[kRowCount][NF];
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NF; ++v) sum[r][v] = _mm512_setzero_ps();
    }
    for (int t = 0; t < count; ++t) {
      const BFloat16* HWY_RESTRICT left = tiles[t].left + key * width;
      const BFloat16* HWY_RESTRICT right = tiles[t].right + 2 * feature;
      for (int64_t pair = 0; pair < tiles[t].queries; ++pair, right += right_row) {
        __m512bh row[NF];
        for (int v = 0; v < NF; ++v) row[v] = load_pairs(right + v * 32);
        HWY_UNROLL(16)
        for (int r = 0; r < kRowCount; ++r) {
          const __m512bh numbers = broadcast_pair(left + r * width + 2 * pair);
          for (int v = 0; v < NF; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], numbers, row[v]);
        }
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NF; ++v) {
        float* total = to + r * to_row + v * 16;
        if (!fresh) sum[r][v] = _mm512_add_ps(_mm512_loadu_ps(total), sum[r][v]);
        _mm512_storeu_ps(total, sum[r][v]);
      }
    }
    key += kRowCount;
    to += kRowCount * to_row;
    n -= kRowCount;
  }
  if constexpr (kRowCount > 1) {
    bf16_add_rows<kRowCount / 2, NF>(tiles, count, width, right_row, key, n, feature, fresh, to,
                                     to_row);
  }
}

template <int NF>
HWY_INLINE void bf16_add_features(const TileFactor<BFloat16>* tiles, int count, int64_t width,
                                  int64_t right_row, int64_t n, int64_t features, int64_t feature,
                                  bool fresh, float* to, int64_t to_row) {
  for (; feature + NF * 16 <= features; feature += NF * 16) {
    bf16_add_rows<kRows<NF>, NF>(tiles, count, width, right_row, 0, n, feature, fresh, to + feature,
                                 to_row);
  }
  if constexpr (NF > 1) {
    bf16_add_features<NF / 2>(tiles, count, width, right_row, n, features, feature, fresh, to,
                              to_row);
  }
}

HWY_NOINLINE void bf16_add_products(const TileFactor<BFloat16>* tiles, int count, int64_t width,
                                    int64_t right_row, int64_t n, int64_t features, bool fresh,
                                    float* to, int64_t to_row) {
  bf16_add_features<4>(tiles, count, width, right_row, n, features, 0, fresh, to, to_row);
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
HWY_AFTER_NAMESPACE();

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

struct BFloat16GradientMath : BFloat16Math {
  static constexpr int kGroupQueries = 128;
  static constexpr bool kPairsKeys = true;

  static constexpr int64_t right_row(int64_t columns) {
    return 2 * (whole_vectors<float>(columns) + kLanes<float>);
  }
  /// Queries go in pairs.
  static constexpr int64_t right_rows(int64_t queries) { return (queries + 1) / 2; }
  static void stage_right(const Problem&, const View& view, const void* from, int64_t queries,
                          int64_t columns, BFloat16* to) {
    stage_pairs(view, from, queries, columns, to, right_row(columns));
  }

  /// Rounds n keys' numbers, in place.
  template <int kWidth>
  HWY_INLINE static const BFloat16* to_left(int64_t n, float* numbers) {
    const Tag<float> d;
    auto* rounded = reinterpret_cast<BFloat16*>(numbers);
    for (int64_t i = 0; i < n * kWidth; i += kLanes<float>) {
      store_as(d, hn::Load(d, numbers + i), rounded + i);
    }
    return rounded;
  }

  /// The gradients of keys 2j and 2j + 1, rounded, as pairs; zero for a key that is not there.
  template <int NV>
  HWY_INLINE static void pair_gradients(int64_t n, float* HWY_RESTRICT gradients,
                                        float* HWY_RESTRICT pairs) {
    const Tag<float> d;
    const Tag<uint32_t> du;
    for (int64_t j = 0; j < n; j += 2) {
      for (int v = 0; v < NV; ++v) {
        const float* even = gradients + (j * NV + v) * 16;
        const Vec<float> odd = j + 1 < n ? hn::Load(d, even + NV * 16) : hn::Zero(d);
        hn::Store(rounded_pairs(hn::Load(d, even), odd), du,
                  reinterpret_cast<uint32_t*>(pairs) + (j / 2 * NV + v) * 16);
      }
    }
  }

  template <int kWidth>
  HWY_INLINE static void add_products(const TileFactor<BFloat16>* tiles, int count, int64_t n,
                                      int64_t columns, bool fresh, float* to, int64_t to_row) {
    bf16_add_products(tiles, count, kWidth, right_row(columns), n, whole_vectors<float>(columns),
                      fresh, to, to_row);
  }
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3

#endif  // ATTN_KERNEL_BF16_GRADIENTS_INL_H_
