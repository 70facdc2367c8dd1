#pragma once

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>

#include "support/elements.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/repetitions.h"

/// Problems of every element and, one after the other, what else a test goes through; of all these,
/// those that a Sample takes.
namespace attn::testing {

/// None, one that every open logit exceeds, one among the open logits.
inline constexpr double kMaskedScores[] = {-std::numeric_limits<double>::infinity(), -1e9, -2.0};

/// Calls check(problem) for every kind of mask, squash and masked score.
template <class Check>
void for_every_mask_and_squash(Random& random, Check check) {
  Sample sample;
  using kernel::Squash;
  for (const kernel::Element element : kElements) {
    for (const MaskKind& mask : mask_kinds()) {
      SCOPED_TRACE(mask.name);
      for (const Squash squash : {Squash::kNone, Squash::kClip, Squash::kSoftcap}) {
        for (const double masked_score : kMaskedScores) {
          if (!sample.takes_next()) continue;
          OwnedProblem owned({2, 2, 1, 37, 133, 9, 10}, element, random);
          mask.add(owned, random);
          owned.problem.squash = squash;
          owned.problem.squash_limit = squash == Squash::kClip ? 3.0 : 2.0;
          owned.problem.masked_score = masked_score;
          check(owned);
        }
      }
    }
  }
}

/// Calls check(problem) for every two of the lengths, of queries and keys. Masks and masked scores
/// take turns.
template <class Lengths, class Check>
void for_every_two_lengths(const Lengths& lengths, Random& random, Check check) {
  Sample sample;
  size_t turn = 0;
  for (const kernel::Element element : kElements) {
    for (const int64_t queries : lengths) {
      for (const int64_t keys : lengths) {
        const MaskKind& mask = mask_kinds()[turn % mask_kinds().size()];
        const double masked_score = kMaskedScores[turn % std::size(kMaskedScores)];
        ++turn;
        if (!sample.takes_next()) continue;
        SCOPED_TRACE(mask.name);
        OwnedProblem owned({1, 1, 1, queries, keys, 8, 9}, element, random);
        mask.add(owned, random);
        owned.problem.masked_score = masked_score;
        check(owned);
      }
    }
  }
}

/// Calls check(problem) for every two of the sizes, of heads and values.
template <class Dims, class Check>
void for_every_two_sizes(const Dims& sizes, Random& random, Check check) {
  Sample sample;
  for (const kernel::Element element : kElements) {
    for (const int64_t head_dim : sizes) {
      for (const int64_t value_dim : sizes) {
        if (!sample.takes_next()) continue;
        const int64_t queries = random.pick<int64_t>({3, 19});  // one tile, or more and a tail
        OwnedProblem owned({1, 1, 1, queries, 37, head_dim, value_dim}, element, random);
        check(owned);
      }
    }
  }
}

/// Calls check(problem, i) for three problems of every shape, i = 0, 1 and 2, whose masks take turns.
template <class Shapes, class Check>
void for_three_of_every_shape(const Shapes& shapes, Random& random, Check check) {
  Sample sample;
  size_t turn = 0;
  for (const kernel::Element element : kElements) {
    for (const auto& sizes : shapes) {
      for (int i = 0; i < 3; ++i) {
        const MaskKind& mask = mask_kinds()[turn % mask_kinds().size()];
        turn += 7;  // has no factor in common with their number
        if (!sample.takes_next()) continue;
        OwnedProblem owned(sizes, element, random);
        mask.add(owned, random);
        owned.problem.masked_score = i == 0 ? -1e9 : -std::numeric_limits<double>::infinity();
        SCOPED_TRACE(std::string(mask.name) + ": " + describe(owned.problem));
        check(owned, i);
      }
    }
  }
}

}  // namespace attn::testing
