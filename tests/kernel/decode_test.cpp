// Few queries over many keys, as in decoding: keys may be split among tasks, and heads of a group
// taken together.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <limits>
#include <string>

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

TEST(KernelDecode, HoldsForEveryQueryAndGroupCount) {
  Random random(17);
  testing::Sample sample;
  for (const Element element : testing::kElements) {
    for (const int64_t queries : {1, 2, 3, 4, 7, 8}) {
      for (const int64_t group : {1, 2, 3, 4, 8, 13}) {
        if (!sample.takes_next()) continue;
        OwnedProblem owned({1, 2 * group, 2, queries, 600, 16, 24}, element, random);
        if (random.chance(0.5)) testing::set_causal(owned, 600 - queries);
        testing::expect_all_accurate(owned.problem);
      }
    }
  }
}

TEST(KernelDecode, HoldsAtEveryTailOfChunks) {
  Random random(18);
  testing::Sample sample;
  for (const Element element : testing::kElements) {
    for (const int64_t chunks : {512, 1024, 2048}) {
      for (const int64_t tail : {-33, -1, 0, 1, 15, 64, 130}) {
        for (const int64_t queries : {1, 5}) {
          if (!sample.takes_next()) continue;
          OwnedProblem owned({1, 2, 1, queries, chunks + tail, 8, 9}, element, random);
          testing::expect_all_accurate(owned.problem);
        }
      }
    }
  }
}

TEST(KernelDecode, HoldsAtEveryHeadSize) {
  const int64_t sizes[] = {1, 3, 7, 8, 16, 17, 31, 63, 64, 65, 80, 96, 128, 129, 256, 512};
  Random random(19);
  testing::Sample sample;
  for (const Element element : testing::kElements) {
    for (const int64_t head_dim : sizes) {
      for (const int64_t value_dim : {head_dim, random.pick<int64_t>({1, 5, 64, 100})}) {
        if (!sample.takes_next()) continue;
        testing::expect_all_accurate(
            OwnedProblem({1, 2, 1, 1, 530, head_dim, value_dim}, element, random).problem);
      }
    }
  }
}

TEST(KernelDecode, HoldsForEveryMaskAndMaskedScore) {
  Random random(20);
  testing::Sample sample;
  for (const Element element : testing::kElements) {
    for (const testing::MaskKind& mask : testing::mask_kinds()) {
      for (const double masked_score : {-kInfinity, -1e9, -2.0}) {
        if (!sample.takes_next()) continue;
        SCOPED_TRACE(mask.name);
        OwnedProblem owned({2, 4, 2, 3, 1100, 8, 8}, element, random);
        mask.add(owned, random);
        owned.problem.masked_score = masked_score;
        owned.problem.squash = random.pick({Squash::kNone, Squash::kClip, Squash::kSoftcap});
        owned.problem.squash_limit = 3.0;
        testing::expect_all_accurate(owned.problem);
      }
    }
  }
}

TEST(KernelDecode, HoldsWhereWholeChunksAreMasked) {
  Random random(21);
  testing::Sample sample;
  for (const Element element : testing::kElements) {
    for (const double masked_score : {-kInfinity, -1e9, -2.0}) {
      for (const int64_t open : {0, 3, 600, 1599}) {  // the only open key; 0 of 1600 the first
        for (const bool any : {true, false}) {
          if (!sample.takes_next()) continue;
          OwnedProblem owned({2, 4, 2, 2, 1600, 8, 8}, element, random);
          testing::set_attend(owned, {0, 3}, [&](int64_t b, int64_t, int64_t, int64_t key) {
            return any && b == 0 && key == open ? 1.0 : 0.0;
          });
          owned.problem.masked_score = masked_score;
          owned.problem.nan_when_fully_masked = random.chance(0.5);
          testing::expect_all_accurate(owned.problem);
        }
      }
    }
  }
}

TEST(KernelDecode, LargeLogitsOfOneChunkOutweighTheOthers) {
  // Chunks are merged relative to the largest logit of all; here it is 60 above those of the others.
  Random random(22);
  for (const Element element : testing::kElements) {
    for (const int64_t large : {5, 700, 1400}) {
      OwnedProblem owned(
          {1, 2, 1, 2, 1500, 1, 4}, element, [](auto...) { return 1.0; },
          [=](int64_t, int64_t, int64_t j, int64_t) { return j == large ? 60.0 : j % 7 / 4.0; },
          OwnedProblem::normal(random));
      testing::expect_all_accurate(owned.problem);
    }
  }
}

}  // namespace
}  // namespace attn::kernel
