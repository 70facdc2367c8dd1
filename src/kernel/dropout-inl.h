// Dropout: which weights of a tile's queries are kept, as `keeps_weight` (dropout.h) says, bit for bit.
//
// Queries lie in the lanes, of 64 bits, for products of 32 bits fill those; so two vectors of
// generators serve one of float32. Only the lower half of a lane counts: what is left of a product in
// the upper half is shifted out or ignored by the next product. Of the first three rounds, all that
// depends on the query alone is computed once per call, what depends on the key alone is no vector: of
// twenty products fifteen remain.

#if defined(ATTN_KERNEL_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_DROPOUT_INL_H_
#undef ATTN_KERNEL_DROPOUT_INL_H_
#else
#define ATTN_KERNEL_DROPOUT_INL_H_
#endif

#include <algorithm>

#include "kernel/attention.h"
#include "kernel/dropout.h"
#include "kernel/mask-inl.h"
#include "kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Which weights of a block are kept, seen from the queries of one tile: a bit for each key, in a word
/// for each group of keys and query.
template <class T, int NV>
struct KeptKeys {
  using Word = hwy::MakeUnsigned<T>;
  HWY_ALIGN Word words[kGroups][NV * kLanes<T>];

  /// The bit of a group's key t. They lie as the generator leaves them: even keys in the lower 16 bits,
  /// odd ones at the same places in the upper 16.
  static constexpr Word bit(int64_t t) { return Word{1} << (t / 4 + t / 2 % 2 * 8 + t % 2 * 16); }
};

/// The dropout of one batch and head.
class RowDropout {
 public:
  RowDropout(const Problem& p, int64_t b, int64_t h) : dropped_(p.dropped) {
    uint32_t key[2] = {static_cast<uint32_t>(p.dropout_seed),
                       static_cast<uint32_t>(p.dropout_seed >> 32)};
    for (Key& round : keys_) {
      round = {key[0], key[1]};
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    head_product_ = kSecond * static_cast<uint32_t>(b * p.heads + h);
  }

  bool any() const { return dropped_ > 0; }

  /// Draws for the weights of a tile of queries and the keys [key, key + n), n ≤ kKeyBlock; `key` is a
  /// multiple of kGroup. Bits of other keys may be anything.
  template <class T, int NV>
  HWY_INLINE void draw(int64_t query, int64_t key, int64_t n, KeptKeys<T, NV>& kept) const {
    const hn::RebindToUnsigned<Tag<T>> d;
    for (int v = 0; v < NV; ++v) {
      const Rows<T> rows(*this, query + v * kLanes<T>);
      for (int64_t j = 0; j < n; j += kGroup) {
        const auto word = draw_group<T>(rows, key + j, std::min<int64_t>(kGroup, n - j));
        hn::Store(word, d, kept.words[j / kGroup] + v * kLanes<T>);
      }
    }
  }

 private:
  using Wide = Vec<uint64_t>;
  static constexpr uint64_t kFirst = 0xD2511F53;
  static constexpr uint64_t kSecond = 0xCD9E8D57;
  static constexpr int kRounds = 10;
  /// Vectors of generators for a vector of queries: of float32, one for the even and one for the odd.
  template <class T>
  static constexpr int kParts = sizeof(uint64_t) / sizeof(T);

  /// The generator's key in one round.
  struct Key {
    uint64_t first, second;
  };

  /// The products of the lanes' lower halves.
  HWY_INLINE static Wide multiply(uint64_t factor, Wide x) {
    const Tag<uint64_t> d;
    const hn::Repartition<uint32_t, Tag<uint64_t>> d32;
    return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, hn::Set(d, factor)));
  }

  /// What the first three rounds make of the queries alone.
  template <class T>
  struct Rows {
    HWY_INLINE Rows(const RowDropout& dropout, int64_t query) {
      const Tag<uint64_t> d;
      const Key* keys = dropout.keys_;
      const Wide lanes = hn::Mul(hn::Iota(d, 0), hn::Set(d, uint64_t{kParts<T>}));
      const Wide head_and_key =
          hn::Set(d, static_cast<uint32_t>(dropout.head_product_) ^ keys[1].first);
      for (int part = 0; part < kParts<T>; ++part) {
        const Wide counter = hn::Add(lanes, hn::Set(d, static_cast<uint64_t>(query + part)));
        const Wide first = multiply(kFirst, counter);
        const Wide second =
            multiply(kSecond, hn::Xor(hn::ShiftRight<32>(first), hn::Set(d, keys[0].second)));
        first_product[part] = first;
        second_product[part] = hn::Xor(second, hn::Set(d, keys[2].first));
        third_product[part] = multiply(kFirst, hn::Xor(hn::ShiftRight<32>(second), head_and_key));
      }
    }

    Wide first_product[kParts<T>];   ///< of round 0
    Wide second_product[kParts<T>];  ///< of round 1, and round 2's key
    Wide third_product[kParts<T>];   ///< of round 2
  };

  /// The word of up to 32 keys.
  template <class T>
  HWY_INLINE Vec<hwy::MakeUnsigned<T>> draw_group(const Rows<T>& rows, int64_t key,
                                                  int64_t n) const {
    const Tag<uint64_t> d;
    const hn::RebindToUnsigned<Tag<T>> dt;
    Wide bits[kParts<T>];
    for (int part = 0; part < kParts<T>; ++part) bits[part] = hn::Zero(d);
    uint64_t bit = 0x0001'0001'0001'0001;
    for (int64_t j = 0; j < n; j += kKeysPerDraw, bit <<= 2) {
      const uint64_t counter = static_cast<uint32_t>((key + j) / kKeysPerDraw);
      draw_keys<T>(rows, counter, bit, bits);
    }
    // A quarter of a lane belongs to the keys 2, 3, 0, 1 of every four, 8 bits each.
    for (int part = 0; part < kParts<T>; ++part) {
      bits[part] = hn::Or(hn::ShiftLeft<8>(bits[part]), hn::ShiftRight<32>(bits[part]));
    }
    if constexpr (kParts<T> == 1) {
      return bits[0];
    } else {
      return hn::OddEven(hn::BitCast(dt, hn::ShiftLeft<32>(bits[1])), hn::BitCast(dt, bits[0]));
    }
  }

  /// Adds the bits of 8 keys: `bit` of each quarter of a lane for the first four, the next for others.
  template <class T>
  HWY_INLINE void draw_keys(const Rows<T>& rows, uint64_t counter, uint64_t bit,
                            Wide (&bits)[kParts<T>]) const {
    const Tag<uint64_t> d;
    const hn::Repartition<int16_t, Tag<uint64_t>> d16;
    const uint64_t key_product =
        kFirst * static_cast<uint32_t>((head_product_ >> 32) ^ counter ^ keys_[0].first);
    const Wide upper = hn::Set(d, (key_product >> 32) ^ keys_[1].second);
    const Wide lower = hn::Set(d, static_cast<uint32_t>(key_product) ^ keys_[2].second);
    const Wide sign = hn::Set(d, 0x8000'8000'8000'8000);
    const auto limit = hn::Set(d16, static_cast<int16_t>((dropped_ - 1) ^ 0x8000));
    Wide c0[kParts<T>], c1[kParts<T>], c2[kParts<T>], c3[kParts<T>];
    for (int part = 0; part < kParts<T>; ++part) {
      c1[part] = multiply(kSecond, hn::Xor(rows.first_product[part], upper));
      c0[part] = hn::Xor(hn::ShiftRight<32>(c1[part]), rows.second_product[part]);
      c3[part] = rows.third_product[part];
      c2[part] = hn::Xor(hn::ShiftRight<32>(c3[part]), lower);
    }
    HWY_UNROLL(6)
    for (int round = 3; round < kRounds - 1; ++round) {
      const Wide first_key = hn::Set(d, keys_[round].first);
      const Wide second_key = hn::Set(d, keys_[round].second);
      for (int part = 0; part < kParts<T>; ++part) {
        const Wide first = multiply(kFirst, c0[part]);
        const Wide second = multiply(kSecond, c2[part]);
        c0[part] = hn::Xor3(hn::ShiftRight<32>(second), c1[part], first_key);
        c1[part] = second;
        c2[part] = hn::Xor3(hn::ShiftRight<32>(first), c3[part], second_key);
        c3[part] = first;
      }
    }
    // The last round leaves a product's upper half where it is: both its words are needed.
    const Key last = keys_[kRounds - 1];
    const Wide first_key = hn::Xor(hn::Set(d, last.first << 32), sign);
    const Wide second_key = hn::Xor(hn::Set(d, last.second << 32), sign);
    const auto early = hn::BitCast(d16, hn::Set(d, bit));
    const auto late = hn::BitCast(d16, hn::Set(d, bit << 1));
    for (int part = 0; part < kParts<T>; ++part) {
      const Wide words10 =
          hn::Xor3(multiply(kSecond, c2[part]), hn::ShiftLeft<32>(c1[part]), first_key);
      const Wide words32 =
          hn::Xor3(multiply(kFirst, c0[part]), hn::ShiftLeft<32>(c3[part]), second_key);
      const auto keeps10 = hn::IfThenElseZero(hn::Gt(hn::BitCast(d16, words10), limit), early);
      const auto keeps32 = hn::IfThenElseZero(hn::Gt(hn::BitCast(d16, words32), limit), late);
      bits[part] = hn::Or3(bits[part], hn::BitCast(d, keeps10), hn::BitCast(d, keeps32));
    }
  }

  uint32_t dropped_;
  uint64_t head_product_;  ///< of round 0
  Key keys_[kRounds];
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_DROPOUT_INL_H_
