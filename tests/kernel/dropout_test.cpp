// Dropout: the generator, which weights are kept, and what becomes of them.

#include <gtest/gtest.h>
#include <kernel/attention.h>
#include <kernel/dropout.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "support/expect_accurate.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/repetitions.h"
#include "support/run_kernel.h"

namespace attn::kernel {
namespace {

using testing::OwnedProblem;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Tiles with tails; one tile of half the width; the queries that decoding would take; blocks with tails.
constexpr testing::Sizes kShapes[] = {{2, 3, 3, 70, 300, 9, 10}, {3, 4, 2, 5, 131, 8, 17},
                                      {2, 6, 1, 1, 700, 16, 16}, {1, 2, 2, 2, 33, 4, 3},
                                      {2, 2, 2, 33, 7, 5, 6},    {1, 1, 1, 16, 128, 8, 8}};

/// Calls check(problem, random) for all elements and shapes, with some of the weights dropped.
template <class Check>
void for_every_shape(const Check& check) {
  Random random(30);
  for (const Element element : testing::kElements) {
    for (const testing::Sizes& sizes : kShapes) {
      OwnedProblem owned(sizes, element, random);
      owned.problem.dropped = static_cast<uint32_t>(1 + random.below(65535));
      owned.problem.dropout_seed = static_cast<uint64_t>(random.below(int64_t{1} << 62)) * 4 + 1;
      SCOPED_TRACE(testing::describe(owned.problem));
      check(owned, random);
    }
  }
}

TEST(Philox, GivesThePublishedNumbers) {  // of Random123's file kat_vectors
  using Counter = std::array<uint32_t, 4>;
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Counter{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Counter{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(KernelDropout, KeepsTheSameWeightsInEveryKernel) {
  for_every_shape([](OwnedProblem& owned, Random&) {
    Problem& p = owned.problem;
    p.scale = 0.0;  // all weights are equal, none is 0 by itself
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto weights = testing::run(kernel, p, {.weights = true}).weights;
      size_t place = 0;
      for (int64_t b = 0; b < p.batches; ++b) {
        for (int64_t h = 0; h < p.heads; ++h) {
          for (int64_t i = 0; i < p.queries; ++i) {
            for (int64_t j = 0; j < p.keys; ++j, ++place) {
              ASSERT_EQ(weights[place] != 0.0, keeps_weight(p, b, h, i, j))
                  << "batch " << b << ", head " << h << ", query " << i << ", key " << j;
            }
          }
        }
      }
    }
  });
}

/// How far the number of successes of n trials may be from its mean: 5 standard deviations, beyond which
/// one seed in a million is.
double five_deviations(double n, double chance) {
  return 5.0 * std::sqrt(n * chance * (1 - chance));
}

TEST(KernelDropout, KeepsAsManyAsAskedAtEveryPlaceOfADraw) {
  Problem p;
  p.heads = 2;
  p.dropout_seed = 0x0123456789ABCDEF;
  constexpr int64_t kDraws = 20'000;  // for each of the 8 keys of a draw
  for (const uint32_t dropped : {0u, 1u, 655u, 6554u, 32768u, 58982u, 65535u, 65536u}) {
    p.dropped = dropped;
    const double chance = 1.0 - dropped / 65536.0;
    std::array<int64_t, kKeysPerDraw> kept{};
    for (int64_t i = 0; i < kDraws; ++i) {
      for (int64_t j = 0; j < kKeysPerDraw; ++j) {
        kept[j] += keeps_weight(p, 1, i % 2, i / 100, i % 100 * kKeysPerDraw + j) ? 1 : 0;
      }
    }
    for (const int64_t count : kept) {
      EXPECT_NEAR(static_cast<double>(count), kDraws * chance, five_deviations(kDraws, chance))
          << dropped << " of 65536 dropped";
    }
  }
}

TEST(KernelDropout, ChoosesAnewForEveryBatchHeadQueryKeyAndSeed) {
  Problem p;
  p.heads = 2;
  p.dropped = 32768;
  constexpr int64_t kSide = 200;
  constexpr double kPlaces = kSide * kSide;
  Problem low = p, high = p;
  low.dropout_seed = 1;
  high.dropout_seed = uint64_t{1} << 32;
  int64_t batch = 0, head = 0, query = 0, key = 0, draw = 0, low_seed = 0, high_seed = 0;
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j) {
      const bool keeps = keeps_weight(p, 0, 0, i, j);
      const auto differs = [&](bool other) { return keeps != other ? 1 : 0; };
      batch += differs(keeps_weight(p, 1, 0, i, j));
      head += differs(keeps_weight(p, 0, 1, i, j));
      query += differs(keeps_weight(p, 0, 0, i + 1, j));
      key += differs(keeps_weight(p, 0, 0, i, j + 1));
      draw += differs(keeps_weight(p, 0, 0, i, j + kKeysPerDraw));
      low_seed += differs(keeps_weight(low, 0, 0, i, j));
      high_seed += differs(keeps_weight(high, 0, 0, i, j));
    }
  }
  for (const int64_t count : {batch, head, query, key, draw, low_seed, high_seed}) {
    EXPECT_NEAR(static_cast<double>(count), kPlaces / 2, five_deviations(kPlaces, 0.5));
  }
}

TEST(KernelDropout, IsComputedByEveryKernelUnderAllMasks) {
  testing::Sample sample;
  size_t turn = 0;
  for (int round = 0; round < 6; ++round) {
    for_every_shape([&](OwnedProblem& owned, Random& random) {
      const testing::MaskKind& mask = testing::mask_kinds()[turn % testing::mask_kinds().size()];
      turn += 7;  // has no factor in common with their number
      if (!sample.takes_next()) return;
      mask.add(owned, random);
      owned.problem.dropped = random.pick({6554u, 32768u, 60000u});
      owned.problem.masked_score = random.chance(0.3) ? -2.0 : -kInfinity;
      SCOPED_TRACE(mask.name);
      testing::expect_all_accurate(owned.problem);
    });
  }
}

TEST(KernelDropout, DoublesWhatItKeepsOfHalfAndLeavesTheLogSumExpAlone) {
  for_every_shape([](OwnedProblem& owned, Random&) {
    Problem& p = owned.problem;
    if (p.queries <= 2) return;  // without dropout, summed up in another order
    p.scale *= 0.1;              // no weight is subnormal, so that twice of it is exact
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      p.dropped = 0;
      const auto whole = testing::run(kernel, p, {.logsumexp = true, .weights = true});
      p.dropped = 32768;
      const auto half = testing::run(kernel, p, {.logsumexp = true, .weights = true});
      EXPECT_EQ(half.logsumexp, whole.logsumexp);
      for (size_t i = 0; i < whole.weights.size(); ++i) {
        ASSERT_TRUE(half.weights[i] == 0.0 || half.weights[i] == 2.0 * whole.weights[i]);
      }
    }
  });
}

TEST(KernelDropout, OfEverythingLeavesZeros) {
  for_every_shape([](OwnedProblem& owned, Random&) {
    Problem& p = owned.problem;
    p.dropped = 65536;
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto answer = testing::run(kernel, p, {.logsumexp = true, .weights = true});
      for (const double x : answer.output) ASSERT_EQ(x, 0.0);
      for (const double x : answer.weights) ASSERT_EQ(x, 0.0);
      for (const double x : answer.logsumexp) ASSERT_TRUE(std::isfinite(x));
    }
  });
}

TEST(KernelDropout, LeavesFullyMaskedRowsNaNOrZeroAsAsked) {
  for_every_shape([](OwnedProblem& owned, Random& random) {
    Problem& p = owned.problem;
    testing::set_block(owned, {2, 3},
                       [](int64_t, int64_t, int64_t i, int64_t) { return i % 2 == 0 ? 1.0 : 0.0; });
    p.nan_when_fully_masked = random.chance(0.5);
    p.dropped = random.pick({32768u, 65536u});
    testing::expect_all_accurate(p);
  });
}

TEST(KernelDropout, IsTheSameInRowsWithNaNBehindTheirMask) {
  for_every_shape([](OwnedProblem& owned, Random& random) {
    Problem& p = owned.problem;
    testing::set_block(owned, {3},
                       [](int64_t, int64_t, int64_t, int64_t j) { return j % 3 == 1 ? 1.0 : 0.0; });
    p.value = owned.tensor(owned.value_extent(), testing::strides_of(owned.value_extent()),
                           p.element, [&](int64_t, int64_t, int64_t j, int64_t) {
                             return j % 3 == 1 ? std::numeric_limits<double>::quiet_NaN()
                                               : random.normal();
                           });
    p.dropped = 20000;
    testing::expect_all_accurate(p);
  });
}

TEST(KernelDropout, DoesNotDependOnOrderOrThreadsOfTheTasks) {
  for_every_shape([](OwnedProblem& owned, Random&) {
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto bits = testing::run(kernel, owned.problem).bits;
      EXPECT_TRUE(bits ==
                  testing::run(kernel, owned.problem,
                               {.logsumexp = true, .weights = true, .reversed = true, .threads = 3})
                      .bits);
    }
  });
}

}  // namespace
}  // namespace attn::kernel
