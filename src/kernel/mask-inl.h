// Masks: which keys of a block each query of a tile may see.
//
// Bytes are read as they lie: 32 keys of one query become one word of 32 bits, the words of a tile's
// queries lie in the lanes, and key after key tests its bit. Groups of 32 keys that are open to all
// queries, or to none, need no test; causality is arithmetic on the words.

#if defined(ATTN_KERNEL_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_MASK_INL_H_
#undef ATTN_KERNEL_MASK_INL_H_
#else
#define ATTN_KERNEL_MASK_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/attention.h"
#include "kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Keys that are worked on together: their logits stay in the L1 cache.
constexpr int kKeyBlock = 128;
/// Keys of one word of a mask.
constexpr int kGroup = 32;
constexpr int kGroups = kKeyBlock / kGroup;

/// The open keys of a block, seen from the queries of one tile.
template <class T, int NV>
struct OpenKeys {
  using Word = hwy::MakeUnsigned<T>;
  enum Kind : uint8_t {
    kBlocked,  ///< to every query
    kOpen,     ///< to every query
    kSame,     ///< words[group][0] holds for every query
    kMixed,
  };
  Kind kinds[kGroups];
  HWY_ALIGN Word words[kGroups][NV * kLanes<T>];
};

/// Bits for the first n of 32 keys. Without a branch, so that a loop of it becomes vectors.
HWY_INLINE uint32_t first_bits(int32_t n) {
  const int32_t count = std::clamp(n, 0, kGroup);
  const int32_t half = count / 2;
  return ((1u << half) << (count - half)) - 1;
}

/// Bit t is set where the byte of key t of n is not 0.
HWY_INLINE uint32_t nonzero_bits(const uint8_t* bytes, int64_t stride, int64_t n) {
  if (stride == 0) return *bytes != 0 ? ~0u : 0u;
  uint32_t bits = 0;
  if (stride == 1 && n >= kGroup) {
    const hn::CappedTag<uint8_t, kGroup> d;
    constexpr int kStep = static_cast<int>(hn::MaxLanes(hn::CappedTag<uint8_t, kGroup>()));
    for (int t = 0; t < kGroup; t += kStep) {
      uint32_t part = 0;
      hn::StoreMaskBits(d, hn::Ne(hn::LoadU(d, bytes + t), hn::Zero(d)),
                        reinterpret_cast<uint8_t*>(&part));
      bits |= part << t;
    }
    return bits;
  }
  for (int64_t t = 0; t < std::min<int64_t>(n, kGroup); ++t) {
    bits |= static_cast<uint32_t>(bytes[t * stride] != 0) << t;
  }
  return bits;
}

/// The masks of one batch and head.
class RowMasks {
 public:
  RowMasks(const Problem& problem, int64_t b, int64_t h) : problem_(problem) {
    if (problem.attend.data != nullptr) attend_ = head_of<uint8_t>(problem.attend, b, h);
    if (problem.block.data != nullptr) block_ = head_of<uint8_t>(problem.block, b, h);
  }

  bool any() const { return problem_.causal || attend_ != nullptr || block_ != nullptr; }

  /// Whether, without a look at bytes, all queries from `query` on see all of the keys [key, key + n).
  bool open_to_all(int64_t query, int64_t key, int64_t n) const {
    return attend_ == nullptr && block_ == nullptr && none_is_later(query, key, n);
  }

  /// Whether causality hides all keys from `key` on from all queries before `query_end`.
  bool hidden_from_all(int64_t query_end, int64_t key) const {
    return problem_.causal && key >= query_end + problem_.causal_offset;
  }

  /// Reads what a tile of queries sees of the keys [key, key + n), n ≤ kKeyBlock.
  template <class T, int NV>
  HWY_INLINE void read(int64_t query, int64_t queries, int64_t key, int64_t n,
                       OpenKeys<T, NV>& open) const {
    using Open = OpenKeys<T, NV>;
    for (int g = 0; n > 0; ++g, key += kGroup, n -= kGroup) {
      auto* words = open.words[g];
      const bool same = same_for_all(query, key, std::min<int64_t>(n, kGroup));
      const int64_t rows = same ? 1 : queries;
      const uint32_t valid = first_bits(static_cast<int32_t>(std::min<int64_t>(n, kGroup)));
      std::fill_n(words, rows, valid);
      if (problem_.causal) {
        const int64_t visible = query + problem_.causal_offset + 1 - key;
        const auto first =
            static_cast<int32_t>(std::clamp<int64_t>(visible, -NV * kLanes<T>, kGroup));
        for (int32_t i = 0; i < static_cast<int32_t>(rows); ++i) words[i] &= first_bits(first + i);
      }
      if (attend_ != nullptr) {
        for (int64_t i = 0; i < rows; ++i) {
          words[i] &=
              nonzero_bits(at(attend_, problem_.attend, query + i, key), problem_.attend.column, n);
        }
      }
      if (block_ != nullptr) {
        for (int64_t i = 0; i < rows; ++i) {
          words[i] &=
              ~nonzero_bits(at(block_, problem_.block, query + i, key), problem_.block.column, n);
        }
      }
      auto all = words[0], any = words[0];
      for (int64_t i = 1; i < rows; ++i) {
        all &= words[i];
        any |= words[i];
      }
      std::fill(words + rows, words + NV * kLanes<T>, words[rows - 1]);
      open.kinds[g] = any == 0       ? Open::kBlocked
                      : all == valid ? Open::kOpen
                      : same         ? Open::kSame
                                     : Open::kMixed;
    }
  }

 private:
  /// Whether causality lets all queries from `query` on see all of the keys [key, key + n).
  bool none_is_later(int64_t query, int64_t key, int64_t n) const {
    return !problem_.causal || query + problem_.causal_offset >= key + n - 1;
  }

  /// Whether all queries from `query` on see the same of the keys [key, key + n).
  bool same_for_all(int64_t query, int64_t key, int64_t n) const {
    return none_is_later(query, key, n) && (attend_ == nullptr || problem_.attend.row == 0) &&
           (block_ == nullptr || problem_.block.row == 0);
  }

  static const uint8_t* at(const uint8_t* bytes, const View& view, int64_t query, int64_t key) {
    return bytes + query * view.row + key * view.column;
  }

  const Problem& problem_;
  const uint8_t* attend_ = nullptr;
  const uint8_t* block_ = nullptr;
};

/// A logit this far below the largest has the weight 0.
template <class T>
constexpr T kNegligible = sizeof(T) == 4 ? T(88) : T(1001);

/// Whether a blocked key has no weight, exactly, in any of these lanes, whose largest logits, or sums of
/// weights by their logarithm, are at `level`: then it may be left out without changing a bit.
template <class T>
HWY_INLINE bool blocked_weigh_nothing(const Problem& p, const T* level, int64_t lanes) {
  if (p.masked_score == -std::numeric_limits<double>::infinity()) return true;
  const Tag<T> d;
  const Vec<T> masked_score = hn::Set(d, static_cast<T>(p.masked_score));
  for (int64_t i = 0; i < lanes; i += kLanes<T>) {
    const Vec<T> above = hn::Sub(hn::Load(d, level + i), masked_score);
    if (!hn::AllTrue(d, hn::Ge(above, hn::Set(d, kNegligible<T>)))) return false;
  }
  return true;
}

/// The keys of a block that matter to a tile, in whole groups but for the last; `masked` if not all
/// queries see all of them.
struct KeyRange {
  int64_t first;
  int64_t n;
  bool masked;
};

/// Where can_skip() allows it, groups at either end that no query sees are left out.
template <class T, int NV, class CanSkip>
HWY_INLINE KeyRange visible_keys(const RowMasks& masks, int64_t query, int64_t queries, int64_t key,
                                 int64_t n, OpenKeys<T, NV>& open, CanSkip can_skip) {
  using Open = OpenKeys<T, NV>;
  if (masks.hidden_from_all(query + queries, key) && can_skip()) return {0, 0, true};
  if (masks.open_to_all(query, key, n)) return {0, n, false};
  masks.read(query, queries, key, n, open);
  if (!can_skip()) return {0, n, true};
  int64_t first = 0;
  int64_t last = (n + kGroup - 1) / kGroup;
  while (first < last && open.kinds[first] == Open::kBlocked) ++first;
  while (first < last && open.kinds[last - 1] == Open::kBlocked) --last;
  if (first == last) return {0, 0, true};
  return {first * kGroup, std::min(last * kGroup, n) - first * kGroup, true};
}

/// Raises `top` to the largest logit of each lane.
template <int NV, class T>
HWY_INLINE void raise_top(const T* HWY_RESTRICT logits, int64_t n, Vec<T> (&top)[NV]) {
  const Tag<T> d;
  Vec<T> odd[NV];
  for (int v = 0; v < NV; ++v) odd[v] = top[v];
  int64_t j = 0;
  for (; j + 2 <= n; j += 2) {
    for (int v = 0; v < NV; ++v) {
      const T* logit = logits + (j * NV + v) * kLanes<T>;
      top[v] = hn::Max(top[v], hn::Load(d, logit));
      odd[v] = hn::Max(odd[v], hn::Load(d, logit + NV * kLanes<T>));
    }
  }
  for (int v = 0; v < NV; ++v) {
    if (j < n) top[v] = hn::Max(top[v], hn::Load(d, logits + (j * NV + v) * kLanes<T>));
    top[v] = hn::Max(top[v], odd[v]);
  }
}

/// Writes the masked score over the logits of blocked keys, of n keys from `first_group` on, and
/// raises `top` to the largest logit of each lane.
template <int NV, class T>
HWY_INLINE void fill_blocked(const OpenKeys<T, NV>& open, int64_t first_group, int64_t n,
                             T masked_score, T* HWY_RESTRICT logits, Vec<T> (&top)[NV]) {
  const Tag<T> d;
  const hn::RebindToUnsigned<Tag<T>> du;
  using Open = OpenKeys<T, NV>;
  using Word = typename Open::Word;
  const Vec<T> fill = hn::Set(d, masked_score);
  for (int64_t g = first_group; n > 0; ++g, n -= kGroup, logits += kGroup * NV * kLanes<T>) {
    const int keys = static_cast<int>(std::min<int64_t>(kGroup, n));
    if (open.kinds[g] == Open::kMixed) {
      hn::Vec<decltype(du)> words[NV];
      for (int v = 0; v < NV; ++v) words[v] = hn::Load(du, open.words[g] + v * kLanes<T>);
      for (int t = 0; t < keys; ++t) {
        const auto bit = hn::Set(du, Word{1} << t);
        for (int v = 0; v < NV; ++v) {
          T* logit = logits + (t * NV + v) * kLanes<T>;
          const auto sees = hn::RebindMask(d, hn::TestBit(words[v], bit));
          const Vec<T> x = hn::IfThenElse(sees, hn::Load(d, logit), fill);
          hn::Store(x, d, logit);
          top[v] = hn::Max(top[v], x);
        }
      }
      continue;
    }
    if (open.kinds[g] != Open::kOpen) {
      for (int t = 0; t < keys; ++t) {
        if ((open.words[g][0] >> t & 1) != 0) continue;
        for (int v = 0; v < NV; ++v) hn::Store(fill, d, logits + (t * NV + v) * kLanes<T>);
      }
    }
    raise_top<NV>(logits, keys, top);
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_MASK_INL_H_
