// The two products of decoding with AVX512_BF16: the lanes run over pairs of features for the logits,
// and over features, with keys in pairs, for the output.

#if defined(ATTN_KERNEL_BF16_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_BF16_DECODE_INL_H_
#undef ATTN_KERNEL_BF16_DECODE_INL_H_
#else
#define ATTN_KERNEL_BF16_DECODE_INL_H_
#endif

#include "kernel/bf16-inl.h"
#include "kernel/decode-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
HWY_PUSH_ATTRIBUTES("avx512bf16")
namespace attn::kernel::HWY_NAMESPACE {

/// Elements of a vector.
constexpr int64_t kPairLanes = 32;

/// The first n < 32 of the elements at p; zeros after them, which are not read.
HWY_INLINE __m512i load_first_elements(const BFloat16* p, int64_t n) {
  return _mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

/// Logits of R queries, rows `query_stride` apart and padded with zeros, and n keys.
template <int R>
HWY_NOINLINE void bf16_decode_logits(const BFloat16* HWY_RESTRICT keys, int64_t stride, int64_t n,
                                     const BFloat16* HWY_RESTRICT queries, int64_t query_stride,
                                     int64_t head_dim, float scale, bool prefetch,
                                     float* HWY_RESTRICT logits) {
  const Tag<float> d;
  for (int64_t j = 0; j < n; j += 4) {
    const BFloat16* rows[4];
    for (int u = 0; u < 4; ++u) {
      rows[u] = keys + std::min(j + u, n - 1) * stride;
      if (prefetch) prefetch_row(rows[u] + kAhead * stride, head_dim);
    }
    __m512 sum[R][4];
    for (int r = 0; r < R; ++r) {
      for (int u = 0; u < 4; ++u) sum[r][u] = _mm512_setzero_ps();
    }
    int64_t x = 0;
    for (; x + kPairLanes <= head_dim; x += kPairLanes) {
      for (int u = 0; u < 4; ++u) {
        const auto key = reinterpret_cast<__m512bh>(_mm512_loadu_si512(rows[u] + x));
        for (int r = 0; r < R; ++r) {
          sum[r][u] = _mm512_dpbf16_ps(sum[r][u], key, load_pairs(queries + r * query_stride + x));
        }
      }
    }
    if (x < head_dim) {
      for (int u = 0; u < 4; ++u) {
        const auto key = reinterpret_cast<__m512bh>(load_first_elements(rows[u] + x, head_dim - x));
        for (int r = 0; r < R; ++r) {
          sum[r][u] = _mm512_dpbf16_ps(sum[r][u], key, load_pairs(queries + r * query_stride + x));
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      float* to = logits + r * kDecodeBlock + j;
      store_sums(d, Vec<float>{sum[r][0]}, Vec<float>{sum[r][1]}, Vec<float>{sum[r][2]},
                 Vec<float>{sum[r][3]}, to);
      _mm_store_ps(to, _mm_mul_ps(_mm_load_ps(to), _mm_set1_ps(scale)));
    }
  }
}

/// Adds values · weights of n keys to the columns from the pointers on: NX vectors, or, of a last
/// vector that is not full, `left` columns.
template <int R, int NX, bool kFull>
HWY_INLINE void bf16_add_columns(const BFloat16* HWY_RESTRICT values, int64_t stride, int64_t n,
                                 const BFloat16* HWY_RESTRICT weights, int64_t left, bool prefetch,
                                 float* HWY_RESTRICT outputs, int64_t output_stride) {
  __m512 lower[R][NX], upper[R][NX];
  for (int r = 0; r < R; ++r) {
    for (int x = 0; x < NX; ++x) lower[r][x] = upper[r][x] = _mm512_setzero_ps();
  }
  for (int64_t j = 0; j < n; j += 2) {
    const BFloat16* row = values + j * stride;
    if (prefetch) {
      prefetch_row(row + kAhead * stride, std::min(left, NX * kPairLanes));
      prefetch_row(row + (kAhead + 1) * stride, std::min(left, NX * kPairLanes));
    }
    for (int x = 0; x < NX; ++x) {
      const auto load = [&](const BFloat16* from) HWY_ATTR {
        return kFull ? _mm512_loadu_si512(from) : load_first_elements(from, left);
      };
      const __m512i even = load(row + x * kPairLanes);
      const __m512i odd = j + 1 < n ? load(row + stride + x * kPairLanes) : _mm512_setzero_si512();
      const auto pairs_lower = reinterpret_cast<__m512bh>(_mm512_unpacklo_epi16(even, odd));
      const auto pairs_upper = reinterpret_cast<__m512bh>(_mm512_unpackhi_epi16(even, odd));
      for (int r = 0; r < R; ++r) {
        const __m512bh weight = broadcast_pair(weights + r * kDecodeBlock + j);
        lower[r][x] = _mm512_dpbf16_ps(lower[r][x], weight, pairs_lower);
        upper[r][x] = _mm512_dpbf16_ps(upper[r][x], weight, pairs_upper);
      }
    }
  }
  // Unpacking has put the columns 0–3, 8–11, … into `lower` and 4–7, 12–15, … into `upper`.
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int r = 0; r < R; ++r) {
    for (int x = 0; x < NX; ++x) {
      float* total = outputs + r * output_stride + x * kPairLanes;
      const __m512 halves[2] = {_mm512_permutex2var_ps(lower[r][x], first, upper[r][x]),
                                _mm512_permutex2var_ps(lower[r][x], second, upper[r][x])};
      for (int half = 0; half < 2; ++half) {
        const int64_t count = kFull ? 16 : std::clamp<int64_t>(left - half * 16, 0, 16);
        const auto mask = static_cast<__mmask16>((1u << count) - 1);
        const __m512 old = _mm512_maskz_loadu_ps(mask, total + half * 16);
        _mm512_mask_storeu_ps(total + half * 16, mask, _mm512_add_ps(old, halves[half]));
      }
    }
  }
}

template <int R, int NX>
HWY_INLINE void bf16_add_all_columns(const BFloat16* values, int64_t stride, int64_t n,
                                     const BFloat16* weights, int64_t left, bool prefetch,
                                     float* outputs, int64_t output_stride) {
  while (left >= NX * kPairLanes) {
    bf16_add_columns<R, NX, true>(values, stride, n, weights, left, prefetch, outputs,
                                  output_stride);
    values += NX * kPairLanes;
    outputs += NX * kPairLanes;
    left -= NX * kPairLanes;
  }
  if constexpr (NX > 1) {
    bf16_add_all_columns<R, NX / 2>(values, stride, n, weights, left, prefetch, outputs,
                                    output_stride);
  } else if (left > 0) {
    bf16_add_columns<R, 1, false>(values, stride, n, weights, left, prefetch, outputs,
                                  output_stride);
  }
}

/// Adds values · weights of n keys to R outputs; the weights are rounded to bfloat16.
template <int R>
HWY_NOINLINE void bf16_decode_output(const BFloat16* values, int64_t stride, int64_t n,
                                     const float* weights, int64_t value_dim, bool prefetch,
                                     float* outputs, int64_t output_stride) {
  alignas(64) BFloat16 rounded[R * kDecodeBlock];
  for (int i = 0; i < R * kDecodeBlock; i += 16) {
    const auto halves = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_load_ps(weights + i)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(rounded + i), halves);
  }
  bf16_add_all_columns<R, R == 4 ? 2 : 4>(values, stride, n, rounded, value_dim, prefetch, outputs,
                                          output_stride);
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
HWY_AFTER_NAMESPACE();

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// bfloat16 products for `Decoder`.
struct BFloat16Products {
  using Sum = float;
  using Element = BFloat16;
  using Query = BFloat16;
  static constexpr int64_t kQueryLanes = kPairLanes;

  HWY_INLINE static void load_query(const Problem& p, const BFloat16* from, BFloat16* to) {
    for (int64_t x = 0; x < p.head_dim; ++x) to[x] = from[x * p.query.column];
  }

  template <int R>
  HWY_INLINE static void logits(const Problem& p, const BFloat16* keys, int64_t n,
                                const BFloat16* queries, int64_t query_stride, bool prefetch,
                                float* logits) {
    bf16_decode_logits<R>(keys, p.key.row, n, queries, query_stride, p.head_dim,
                          static_cast<float>(p.scale), prefetch, logits);
  }

  template <int R>
  HWY_INLINE static void output(const Problem& p, const BFloat16* values, int64_t n,
                                const float* weights, bool prefetch, float* outputs,
                                int64_t output_stride) {
    bf16_decode_output<R>(values, p.value.row, n, weights, p.value_dim, prefetch, outputs,
                          output_stride);
  }
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3

#endif  // ATTN_KERNEL_BF16_DECODE_INL_H_
