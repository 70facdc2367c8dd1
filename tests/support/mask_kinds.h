#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "support/owned_problem.h"

namespace attn::testing {

/// Whether (query, key) is open: regions of 20 × 40 that are all open, all blocked or mixed, so that
/// tiles of every kind occur, with borders that are no tile's.
inline Draw random_openness(Random& random) {
  const uint64_t salt = static_cast<uint64_t>(random.below(int64_t{1} << 62));
  return [&random, salt](int64_t b, int64_t h, int64_t query, int64_t key) {
    // The golden ratio's digits, for their upper bits scatter.
    const uint64_t region =
        salt + static_cast<uint64_t>(((b * 7 + h) * 31 + query / 20) * 31 + key / 40);
    const uint64_t kind = region * 0x9E3779B97F4A7C15 >> 62;
    return kind == 0 || (kind > 1 && random.chance(0.6)) ? 1.0 : 0.0;
  };
}

/// A byte of a mask that is not 0.
inline double nonzero_byte(Random& random) {
  return static_cast<double>(random.pick({1, 1, 1, 2, 128, 255}));
}

inline Draw attend_bytes(Random& random) {
  return [&random, open = random_openness(random)](auto... at) {
    return open(at...) != 0.0 ? nonzero_byte(random) : 0.0;
  };
}

inline Draw block_bytes(Random& random) {
  return [&random, open = random_openness(random)](auto... at) {
    return open(at...) != 0.0 ? 0.0 : nonzero_byte(random);
  };
}

inline Draw bias_numbers(Random& random) {
  return [&random, open = random_openness(random)](auto... at) {
    return open(at...) != 0.0 ? random.normal() : -std::numeric_limits<double>::infinity();
  };
}

inline void set_causal(OwnedProblem& p, int64_t offset) {
  p.problem.causal = true;
  p.problem.causal_offset = offset;
}

/// Masks that depend on the named dimensions alone; the others have stride 0.
inline void set_attend(OwnedProblem& p, std::initializer_list<int> dimensions, const Draw& draw) {
  p.problem.attend = p.bytes(p.logits_extent(), strides_of(p.logits_extent(), dimensions), draw);
}
inline void set_block(OwnedProblem& p, std::initializer_list<int> dimensions, const Draw& draw) {
  p.problem.block = p.bytes(p.logits_extent(), strides_of(p.logits_extent(), dimensions), draw);
}
inline void set_bias(OwnedProblem& p, std::initializer_list<int> dimensions,
                     kernel::Element element, const Draw& draw) {
  p.problem.bias =
      p.tensor(p.logits_extent(), strides_of(p.logits_extent(), dimensions), element, draw);
  p.problem.bias_element = element;
}

struct MaskKind {
  const char* name;
  void (*add)(OwnedProblem&, Random&);
};

/// Every kind of mask, and what combines.
inline const std::vector<MaskKind>& mask_kinds() {
  using kernel::Element;
  static const std::vector<MaskKind> kinds = {
      {"none", [](OwnedProblem&, Random&) {}},
      {"causal top-left", [](OwnedProblem& p, Random&) { set_causal(p, 0); }},
      {"causal bottom-right",
       [](OwnedProblem& p, Random&) { set_causal(p, p.problem.keys - p.problem.queries); }},
      {"causal, first rows without keys", [](OwnedProblem& p, Random&) { set_causal(p, -6); }},
      {"causal, an odd offset", [](OwnedProblem& p, Random&) { set_causal(p, 13); }},
      {"attend [B, H, L, S]",
       [](OwnedProblem& p, Random& r) {
         set_attend(p, {0, 1, 2, 3}, attend_bytes(r));
       }},
      {"attend [L, S]",
       [](OwnedProblem& p, Random& r) {
         set_attend(p, {2, 3}, attend_bytes(r));
       }},
      {"attend of keys [B, 1, 1, S]",
       [](OwnedProblem& p, Random& r) {
         set_attend(p, {0, 3}, attend_bytes(r));
       }},
      {"attend of queries [B, 1, L, 1]",
       [](OwnedProblem& p, Random& r) {
         set_attend(p, {0, 2}, attend_bytes(r));
       }},
      {"attend per head [1, H, L, S], keys outermost",
       [](OwnedProblem& p, Random& r) {
         set_attend(p, {3, 1, 2}, attend_bytes(r));
       }},
      {"block [B, H, L, S]",
       [](OwnedProblem& p, Random& r) {
         set_block(p, {0, 1, 2, 3}, block_bytes(r));
       }},
      {"block of keys [1, H, 1, S]",
       [](OwnedProblem& p, Random& r) {
         set_block(p, {1, 3}, block_bytes(r));
       }},
      {"attend and block",
       [](OwnedProblem& p, Random& r) {
         set_attend(p, {0, 3}, attend_bytes(r));
         set_block(p, {1, 2, 3}, block_bytes(r));
       }},
      {"causal and attend of keys",
       [](OwnedProblem& p, Random& r) {
         set_causal(p, 4);
         set_attend(p, {0, 3}, attend_bytes(r));
       }},
      {"float32 bias [B, H, L, S]",
       [](OwnedProblem& p, Random& r) {
         set_bias(p, {0, 1, 2, 3}, Element::kFloat32, bias_numbers(r));
       }},
      {"float64 bias [1, H, L, S]",
       [](OwnedProblem& p, Random& r) {
         set_bias(p, {1, 2, 3}, Element::kFloat64, bias_numbers(r));
       }},
      {"bfloat16 bias of keys [B, 1, 1, S]",
       [](OwnedProblem& p, Random& r) {
         set_bias(p, {0, 3}, Element::kBFloat16, bias_numbers(r));
       }},
      {"float16 bias, keys outermost",
       [](OwnedProblem& p, Random& r) {
         set_bias(p, {3, 0, 2}, Element::kFloat16, bias_numbers(r));
       }},
      {"float32 bias of queries [1, H, L, 1]",
       [](OwnedProblem& p, Random& r) {
         set_bias(p, {1, 2}, Element::kFloat32, bias_numbers(r));
       }},
      {"causal, attend, block and bias",
       [](OwnedProblem& p, Random& r) {
         set_causal(p, 17);
         set_attend(p, {0, 3}, attend_bytes(r));
         set_block(p, {1, 2, 3}, block_bytes(r));
         set_bias(p, {0, 1, 2, 3}, Element::kFloat32, bias_numbers(r));
       }},
  };
  return kinds;
}

}  // namespace attn::testing
