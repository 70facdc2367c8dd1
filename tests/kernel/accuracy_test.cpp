// Every target of the kernel against plain loops in float64, of the inputs as their elements hold them.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <limits>

#include "support/expect_accurate.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/plain_problem.h"
#include "support/problem_grids.h"
#include "support/run_kernel.h"

namespace attn::kernel {
namespace {

using testing::expect_all_accurate;
using testing::kElements;
using testing::OwnedProblem;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(KernelAccuracy, HoldsForEveryMaskSquashAndMaskedScore) {
  Random random(1);
  testing::for_every_mask_and_squash(
      random, [](const OwnedProblem& owned) { expect_all_accurate(owned.problem); });
}

TEST(KernelAccuracy, HoldsAtEveryTailOfQueriesAndKeys) {
  // w−1, w and w+1 of tiles from 2 to 32 queries, of groups of 32 and blocks of 128 keys.
  const int64_t lengths[] = {1,  2,  3,  4,  5,  7,  8,   9,   15,  16, 17,
                             31, 32, 33, 63, 64, 65, 127, 128, 129, 257};
  Random random(2);
  testing::for_every_two_lengths(
      lengths, random, [](const OwnedProblem& owned) { expect_all_accurate(owned.problem); });
}

TEST(KernelAccuracy, HoldsAtEveryHeadSizeAndValueSize) {
  const int64_t sizes[] = {1, 3, 7, 16, 17, 63, 64, 65, 80, 96, 128, 224, 256, 512};
  Random random(3);
  testing::for_every_two_sizes(
      sizes, random, [](const OwnedProblem& owned) { expect_all_accurate(owned.problem); });
}

TEST(KernelAccuracy, IsBoundedForNormalInputsOfUsualSizes) {
  Random random(4);
  testing::Sample sample;
  for (const Element element : kElements) {
    for (const bool causal : {false, true}) {
      if (!sample.takes_next()) continue;
      OwnedProblem owned({1, 2, 2, 260, 390, 64, 64}, element, random);
      if (causal) testing::set_causal(owned, 0);
      SCOPED_TRACE(testing::describe(owned.problem));
      const testing::PlainAnswer plain = testing::PlainProblem(owned.problem).solve();
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        const auto d = testing::distance(testing::run(kernel, owned.problem), plain);
        EXPECT_LE(d.relative, testing::relative_bound(element));
        // The first causal rows are values of up to 4: 12 roundings of 2^-24 · 4.
        EXPECT_LE(d.largest, element == Element::kFloat32 ? 3e-6 : kInfinity);
      }
    }
  }
}

}  // namespace
}  // namespace attn::kernel
