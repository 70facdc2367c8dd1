#pragma once

#include <kernel/attention.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "support/mask_kinds.h"
#include "support/owned_problem.h"

namespace attn::testing {

/// Mostly small, sometimes larger, often at a tail.
inline int64_t random_length(Random& random) {
  const int64_t length = random.chance(0.5) ? random.pick<int64_t>({1, 8, 16, 32, 64, 128}) +
                                                  random.pick<int64_t>({0, 0, 1, -1})
                                            : 1 + random.below(random.pick<int64_t>({8, 70, 300}));
  return std::max<int64_t>(length, 1);
}

inline int64_t random_dim(Random& random) {
  return 1 + random.below(random.pick<int64_t>({5, 40, 140}));
}

/// Of at most so many products of query, key, value and weight.
inline Sizes random_sizes(Random& random, int64_t most) {
  Sizes s;
  do {
    s.batches = 1 + random.below(3);
    s.key_heads = 1 + random.below(3);
    s.heads = s.key_heads * random.pick<int64_t>({1, 1, 2, 4});
    s.queries = random.chance(0.3) ? 1 + random.below(8) : random_length(random);
    s.keys = random.chance(0.1) ? 500 + random.below(700) : random_length(random);
    s.head_dim = random_dim(random);
    s.value_dim = random.chance(0.5) ? s.head_dim : random_dim(random);
  } while (s.batches * s.heads * s.queries * s.keys * (s.head_dim + s.value_dim) > most);
  return s;
}

/// Any sizes, strides, masks and options at once.
inline OwnedProblem random_problem(Random& random, int64_t most) {
  using kernel::Element;
  using kernel::Squash;
  using kernel::View;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  OwnedProblem owned(
      random_sizes(random, most),
      random.pick({Element::kFloat32, Element::kFloat64, Element::kBFloat16, Element::kFloat16}));
  kernel::Problem& p = owned.problem;
  const auto normal = OwnedProblem::normal(random);
  const auto strides = [&random](const Extent& extent, double broadcast) {
    return random_strides(extent, random, broadcast);
  };
  p.query =
      owned.tensor(owned.query_extent(), strides(owned.query_extent(), 0.05), p.element, normal);
  View key_strides = strides(owned.key_extent(), 0.05);
  while (p.query.column == 0 && key_strides.column == 0) {  // sums of equal terms err to one side
    key_strides = strides(owned.key_extent(), 0.05);
  }
  p.key = owned.tensor(owned.key_extent(), key_strides, p.element, normal);
  p.value =
      owned.tensor(owned.value_extent(), strides(owned.value_extent(), 0.05), p.element, normal);
  p.scale *= random.pick({0.5, 1.0, 1.0, 2.0});
  p.squash = random.pick({Squash::kNone, Squash::kNone, Squash::kClip, Squash::kSoftcap});
  p.squash_limit = random.pick({0.5, 2.0, 10.0});
  if (random.chance(0.4)) {
    const int64_t offset =
        random.pick({int64_t{0}, p.keys - p.queries, random.below(20), -random.below(20)});
    set_causal(owned, offset);
  }
  const Extent logits = owned.logits_extent();
  if (random.chance(0.3)) {
    p.attend = owned.bytes(logits, strides(logits, 0.4), attend_bytes(random));
  }
  if (random.chance(0.3)) {
    p.block = owned.bytes(logits, strides(logits, 0.4), block_bytes(random));
  }
  if (random.chance(0.3)) {
    p.bias_element =
        random.pick({Element::kFloat32, Element::kFloat64, Element::kBFloat16, Element::kFloat16});
    p.bias = owned.tensor(logits, strides(logits, 0.4), p.bias_element, bias_numbers(random));
  }
  p.masked_score = random.pick({-kInfinity, -kInfinity, -1e9, -1e20, -2.0, 1.0});
  p.nan_when_fully_masked = random.chance(0.5);
  return owned;
}

}  // namespace attn::testing
