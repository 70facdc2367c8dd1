// bfloat16 arithmetic with AVX512_BF16: a vector holds 16 pairs, and dpbf16 adds both products of a pair
// to a float32. Features go in pairs for Sᵀ = K · Qᵀ, keys for Oᵀ = Vᵀ · Pᵀ.

#if defined(ATTN_KERNEL_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_BF16_INL_H_
#undef ATTN_KERNEL_BF16_INL_H_
#else
#define ATTN_KERNEL_BF16_INL_H_
#endif

#include <cmath>
#include <cstring>

#include "kernel/dropout-inl.h"
#include "kernel/elements-inl.h"
#include "kernel/simd-inl.h"
#include "kernel/transpose-inl.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

// Highway has no target of this instruction; the functions that use it get the attribute by
// themselves, and are called only where the CPU has it.
HWY_BEFORE_NAMESPACE();
HWY_PUSH_ATTRIBUTES("avx512bf16")
namespace attn::kernel::HWY_NAMESPACE {

HWY_INLINE __m512bh broadcast_pair(const BFloat16* pair) {
  int bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

HWY_INLINE __m512bh load_pairs(const BFloat16* pairs) {
  return reinterpret_cast<__m512bh>(_mm512_load_si512(pairs));
}

template <int kRowCount, int NV, bool kScaled>
HWY_INLINE void bf16_logits_of_rows(const BFloat16* HWY_RESTRICT keys, int64_t stride, int64_t n,
                                    const BFloat16* HWY_RESTRICT query_tile, int64_t pairs,
                                    float scale, float* HWY_RESTRICT logits) {
  while (n >= kRowCount) {
    __m512 sum[kRowCount][NV];
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NV; ++v) sum[r][v] = _mm512_setzero_ps();
    }
    for (int64_t x = 0; x < pairs; ++x) {
      __m512bh query[NV];
      for (int v = 0; v < NV; ++v) query[v] = load_pairs(query_tile + (x * NV + v) * 32);
      HWY_UNROLL(16)
      for (int r = 0; r < kRowCount; ++r) {
        const __m512bh key = broadcast_pair(keys + r * stride + 2 * x);
        for (int v = 0; v < NV; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], key, query[v]);
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NV; ++v) {
        if constexpr (!kScaled) sum[r][v] = _mm512_mul_ps(sum[r][v], _mm512_set1_ps(scale));
        _mm512_store_ps(logits + (r * NV + v) * 16, sum[r][v]);
      }
    }
    keys += kRowCount * stride;
    logits += kRowCount * NV * 16;
    n -= kRowCount;
  }
  if constexpr (kRowCount > 1) {
    bf16_logits_of_rows<kRowCount / 2, NV, kScaled>(keys, stride, n, query_tile, pairs, scale,
                                                    logits);
  }
}

/// The queries are scaled already, or the logits will be.
template <int NV, bool kScaled>
HWY_NOINLINE void bf16_logits(const BFloat16* keys, int64_t stride, int64_t n,
                              const BFloat16* query_tile, int64_t pairs, float scale,
                              float* logits) {
  bf16_logits_of_rows<kRows<NV>, NV, kScaled>(keys, stride, n, query_tile, pairs, scale, logits);
}

template <int kRowCount, int NV>
HWY_INLINE void bf16_output_of_rows(const BFloat16* HWY_RESTRICT values, int64_t stride,
                                    int64_t pairs, const BFloat16* HWY_RESTRICT weights,
                                    int64_t value_dim, const Vec<float>* HWY_RESTRICT decay,
                                    bool fresh, float* HWY_RESTRICT output) {
  while (value_dim >= kRowCount) {
    __m512 sum[kRowCount][NV];
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NV; ++v) sum[r][v] = _mm512_setzero_ps();
    }
    for (int64_t j = 0; j < pairs; ++j) {
      __m512bh weight[NV];
      for (int v = 0; v < NV; ++v) weight[v] = load_pairs(weights + (j * NV + v) * 32);
      HWY_UNROLL(16)
      for (int r = 0; r < kRowCount; ++r) {
        const __m512bh value = broadcast_pair(values + j * 2 * stride + 2 * r);
        for (int v = 0; v < NV; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], value, weight[v]);
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRowCount; ++r) {
      for (int v = 0; v < NV; ++v) {
        float* total = output + (r * NV + v) * 16;
        if (!fresh) sum[r][v] = _mm512_fmadd_ps(decay[v].raw, _mm512_load_ps(total), sum[r][v]);
        _mm512_store_ps(total, sum[r][v]);
      }
    }
    values += 2 * kRowCount;
    output += kRowCount * NV * 16;
    value_dim -= kRowCount;
  }
  if constexpr (kRowCount > 1) {
    bf16_output_of_rows<kRowCount / 2, NV>(values, stride, pairs, weights, value_dim, decay, fresh,
                                           output);
  }
}

template <int NV>
HWY_NOINLINE void bf16_output(const BFloat16* values, int64_t stride, int64_t pairs,
                              const BFloat16* weights, int64_t value_dim, const Vec<float>* decay,
                              bool fresh, float* output) {
  bf16_output_of_rows<kRows<NV>, NV>(values, stride, pairs, weights, value_dim, decay, fresh,
                                     output);
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
HWY_AFTER_NAMESPACE();

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// bfloat16 products, float32 sums; the weights of the second product are rounded to bfloat16.
struct BFloat16Math {
  using Sum = float;
  using Key = BFloat16;
  using Value = BFloat16;

  static int64_t even(int64_t n) { return n + n % 2; }
  static bool in_place(const Problem&, const View& rows, int64_t columns) {
    return rows.column == 1 && columns % 2 == 0;
  }
  static bool keys_in_place(const Problem& p) { return in_place(p, p.key, p.head_dim); }
  static bool values_in_place(const Problem&) { return false; }
  static int64_t row_numbers(int64_t columns) { return even(columns); }

  template <int NV>
  HWY_INLINE static void load_tile(const Problem&, const View& view, const void* from, int64_t rows,
                                   int64_t columns, double scale, float* HWY_RESTRICT scratch,
                                   BFloat16* HWY_RESTRICT tile) {
    auto* copies = reinterpret_cast<BFloat16*>(scratch);
    copy_rows(view, from, rows, columns, copies);
    if (scales_exactly(scale)) scale_row(static_cast<float>(scale), rows * even(columns), copies);
    const int64_t pairs = even(columns) / 2;
    rows_to_tile<NV, true>(scratch, pairs, rows, pairs, 1.0f, reinterpret_cast<float*>(tile));
  }

  static void stage_rows(const Problem&, const View& view, const void* from, int64_t n,
                         int64_t columns, BFloat16* to) {
    copy_rows(view, from, n, columns, to);
  }
  static void stage_keys(const Problem& p, const void* from, int64_t n, BFloat16* to) {
    stage_rows(p, p.key, from, n, p.head_dim, to);
  }
  static void stage_values(const Problem& p, const void* from, int64_t n, BFloat16* to) {
    stage_pairs(p.value, from, n, p.value_dim, to, 2 * p.value_dim);
  }

  /// Rows 2j and 2j + 1 to pairs, one row of them after another, `to_row` numbers apart; zeros for a
  /// row or column that is not there.
  static void stage_pairs(const View& view, const void* from, int64_t n, int64_t columns,
                          BFloat16* to, int64_t to_row) {
    const auto* rows = static_cast<const BFloat16*>(from);
    const Tag<uint32_t> d;
    const hn::Rebind<uint16_t, Tag<uint32_t>> d16;
    for (int64_t j = 0; j < n; j += 2, to += to_row) {
      const BFloat16* even_row = rows + j * view.row;
      const BFloat16* odd_row = j + 1 < n ? even_row + view.row : nullptr;
      int64_t x = 0;
      if (view.column == 1 && odd_row != nullptr) {
        for (; x + kLanes<float> <= columns; x += kLanes<float>) {
          const auto lower = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(even_row + x));
          const auto upper = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(odd_row + x));
          hn::StoreU(hn::Or(hn::PromoteTo(d, lower), hn::ShiftLeft<16>(hn::PromoteTo(d, upper))), d,
                     reinterpret_cast<uint32_t*>(to + 2 * x));
        }
      }
      for (; x < columns; ++x) {
        to[2 * x] = even_row[x * view.column];
        to[2 * x + 1] = odd_row != nullptr ? odd_row[x * view.column] : BFloat16{0};
      }
      std::fill(to + 2 * columns, to + to_row, BFloat16{0});
    }
  }

  template <int NV>
  HWY_INLINE static void logits(const BFloat16* rows, int64_t stride, int64_t n,
                                const BFloat16* tile, int64_t columns, double scale,
                                float* logits) {
    const auto product = scales_exactly(scale) ? bf16_logits<NV, true> : bf16_logits<NV, false>;
    product(rows, stride, n, tile, even(columns) / 2, static_cast<float>(scale), logits);
  }

  /// Turns logits into weights e^(logit − top) and adds them to `sum`; leaves pairs of rounded
  /// weights where the logits were.
  template <int NV>
  HWY_INLINE static void weights(int64_t n, const Vec<float> (&top)[NV], float* HWY_RESTRICT logits,
                                 Vec<float> (&sum)[NV]) {
    const Tag<float> d;
    const hn::RebindToUnsigned<Tag<float>> du;
    Vec<float> odd_sum[NV];
    for (int v = 0; v < NV; ++v) odd_sum[v] = hn::Zero(d);
    if (n % 2 != 0) {  // the last pair is filled up with a key of no weight
      const Vec<float> nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
      for (int v = 0; v < NV; ++v) hn::Store(nothing, d, logits + (n * NV + v) * 16);
    }
    for (int64_t j = 0; j < n; j += 2) {
      for (int v = 0; v < NV; ++v) {
        const float* logit = logits + (j * NV + v) * 16;
        const Vec<float> even = exp(d, hn::Sub(hn::Load(d, logit), top[v]));
        const Vec<float> odd = exp(d, hn::Sub(hn::Load(d, logit + NV * 16), top[v]));
        sum[v] = hn::Add(sum[v], even);
        odd_sum[v] = hn::Add(odd_sum[v], odd);
        hn::Store(rounded_pairs(even, odd), du,
                  reinterpret_cast<uint32_t*>(logits) + (j / 2 * NV + v) * 16);
      }
    }
    for (int v = 0; v < NV; ++v) sum[v] = hn::Add(sum[v], odd_sum[v]);
  }

  /// Zeroes the weights that are not kept: of a pair, the bits lie in different halves.
  template <int NV>
  HWY_INLINE static void drop(const KeptKeys<float, NV>& kept, int64_t n,
                              float* HWY_RESTRICT weights) {
    const hn::Repartition<uint16_t, Tag<float>> d;
    auto* pairs = reinterpret_cast<uint16_t*>(weights);
    for (int64_t j = 0; j < n; j += kGroup) {
      hn::Vec<decltype(d)> words[NV];
      for (int v = 0; v < NV; ++v) {
        words[v] = hn::Load(d, reinterpret_cast<const uint16_t*>(kept.words[j / kGroup] + v * 16));
      }
      for (int64_t t = 0; t < std::min<int64_t>(kGroup, n - j); t += 2) {
        const auto bit = hn::Set(d, static_cast<uint16_t>(KeptKeys<float, NV>::bit(t)));
        for (int v = 0; v < NV; ++v) {
          uint16_t* pair = pairs + ((j + t) / 2 * NV + v) * 32;
          hn::Store(hn::IfThenElseZero(hn::TestBit(words[v], bit), hn::Load(d, pair)), d, pair);
        }
      }
    }
  }

  template <int NV>
  HWY_INLINE static void output(const BFloat16* values, int64_t stride, int64_t n, int64_t columns,
                                const float* weights, const Vec<float> (&decay)[NV], bool fresh,
                                float* output) {
    bf16_output<NV>(values, stride, even(n) / 2, reinterpret_cast<const BFloat16*>(weights),
                    columns, decay, fresh, output);
  }

  /// Adding half a unit to the magnitude rounds to nearest; ties go away from zero.
  HWY_INLINE static Vec<uint32_t> rounded_pairs(Vec<float> even, Vec<float> odd) {
    const Tag<uint32_t> d;
    const hn::Repartition<uint16_t, Tag<uint32_t>> d16;
    const Vec<uint32_t> half = hn::Set(d, 0x8000);
    const Vec<uint32_t> lower = hn::ShiftRight<16>(hn::Add(hn::BitCast(d, even), half));
    const Vec<uint32_t> upper = hn::Add(hn::BitCast(d, odd), half);
    return hn::BitCast(d, hn::OddEven(hn::BitCast(d16, upper), hn::BitCast(d16, lower)));
  }

 private:
  /// A power of two, 1/√D for D = 16, 64, 256, scales queries without rounding them.
  static bool scales_exactly(double scale) {
    int exponent;
    return std::frexp(scale, &exponent) == 0.5 && exponent <= 1 && exponent > -16;
  }

  static void scale_row(float scale, int64_t n, BFloat16* HWY_RESTRICT row) {
    const Tag<float> d;
    int64_t i = 0;
    for (; i + kLanes<float> <= n; i += kLanes<float>) {
      store_as(d, hn::Mul(load_as(d, row + i), hn::Set(d, scale)), row + i);
    }
    for (; i < n; ++i) row[i] = hwy::BF16FromF32(to_float(row[i]) * scale);
  }

  /// Copies rows whose columns may lie apart to rows of an even length, padded with zero.
  static void copy_rows(const View& view, const void* from, int64_t rows, int64_t columns,
                        BFloat16* HWY_RESTRICT to) {
    const auto* row = static_cast<const BFloat16*>(from);
    for (int64_t i = 0; i < rows; ++i, row += view.row, to += even(columns)) {
      if (view.column == 1) {
        std::memcpy(static_cast<void*>(to), row, static_cast<size_t>(columns) * sizeof(BFloat16));
      } else {
        for (int64_t x = 0; x < columns; ++x) to[x] = row[x * view.column];
      }
      if (columns % 2 != 0) to[columns] = BFloat16{0};
    }
  }
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3

#endif  // ATTN_KERNEL_BF16_INL_H_
