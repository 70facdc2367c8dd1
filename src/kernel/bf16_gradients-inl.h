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

HWY_INLINE __m512i round_to_bf16(__m512 lower, __m512 upper) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(upper, lower));
}

/// Rounds n keys' numbers in place: row j of bfloat16 lies where the first half of row j / 2 was.
HWY_NOINLINE void bf16_round_rows(int64_t numbers, float* rows) {
  auto* to = reinterpret_cast<BFloat16*>(rows);
  int64_t i = 0;
  for (; i + 32 <= numbers; i += 32) {
    _mm512_store_si512(to + i,
                       round_to_bf16(_mm512_load_ps(rows + i), _mm512_load_ps(rows + i + 16)));
  }
  if (i < numbers) {
    const __m512i last = round_to_bf16(_mm512_load_ps(rows + i), _mm512_setzero_ps());
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + i), _mm512_castsi512_si256(last));
  }
}

/// Rounds n keys' gradients in place, and besides makes pairs of keys 2j and 2j + 1 of them, one lane
/// after another; zero for a key that is not there.
template <int NV>
HWY_NOINLINE void bf16_round_and_pair(int64_t n, float* HWY_RESTRICT rows,
                                      BFloat16* HWY_RESTRICT pairs) {
  const __m512i step = _mm512_set1_epi32(0x0001'0001);
  const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  // Numbers i of either vector in turn, i from 0 or from 16 on.
  const __m512i from_0 =
      _mm512_or_si512(_mm512_mullo_epi32(lanes, step), _mm512_set1_epi32(32 << 16));
  const __m512i from_16 = _mm512_add_epi16(from_0, _mm512_set1_epi16(16));
  auto* rounded = reinterpret_cast<BFloat16*>(rows);
  for (int64_t j = 0; j < n; j += 2, pairs += NV * 32) {
    const float* even_row = rows + j * NV * 16;
    const float* odd_row = even_row + NV * 16;
    __m512 even[NV], odd[NV];
    for (int v = 0; v < NV; ++v) {
      even[v] = _mm512_load_ps(even_row + v * 16);
      odd[v] = j + 1 < n ? _mm512_load_ps(odd_row + v * 16) : _mm512_setzero_ps();
    }
    if constexpr (NV == 2) {
      const __m512i even_numbers = round_to_bf16(even[0], even[NV - 1]);
      const __m512i odd_numbers = round_to_bf16(odd[0], odd[NV - 1]);
      _mm512_store_si512(rounded + j * 32, even_numbers);
      _mm512_store_si512(rounded + (j + 1) * 32, odd_numbers);
      _mm512_store_si512(pairs, _mm512_permutex2var_epi16(even_numbers, from_0, odd_numbers));
      _mm512_store_si512(pairs + 32, _mm512_permutex2var_epi16(even_numbers, from_16, odd_numbers));
    } else {
      const __m512i numbers = round_to_bf16(even[0], odd[0]);
      _mm512_store_si512(rounded + j * 16, numbers);
      const __m512i halves = _mm512_sub_epi16(from_0, _mm512_set1_epi32(16 << 16));
      _mm512_store_si512(pairs, _mm512_permutexvar_epi16(halves, numbers));
    }
  }
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

  template <int NV>
  HWY_INLINE static void round_weights(int64_t n, float* weights) {
    bf16_round_rows(n * NV * 16, weights);
  }
  template <int NV>
  HWY_INLINE static void round_gradients(int64_t n, float* gradients, BFloat16* pairs) {
    bf16_round_and_pair<NV>(n, gradients, pairs);
  }
  static const BFloat16* rounded(const float* numbers) {
    return reinterpret_cast<const BFloat16*>(numbers);
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
