// Gradients of random problems: any sizes, strides, masks, options and requests at once.
//
// A failure prints the seed of its problem; ATTN_TEST_SEED=<seed> ATTN_TEST_CASES=1 runs it alone.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <cstdint>

#include "support/expect_gradients.h"
#include "support/gradient_request.h"
#include "support/owned_problem.h"
#include "support/random_problem.h"
#include "support/repetitions.h"

namespace attn::kernel {
namespace {

using testing::GradientRequest;
using testing::OwnedProblem;
using testing::Random;

/// Often everything, sometimes some of it.
GradientRequest any_request(OwnedProblem& owned, Random& random) {
  const testing::Extent extent = owned.output_extent();
  GradientRequest request = testing::random_request(
      owned, random, testing::random_strides(extent, random, 0.2), random.chance(0.5));
  const bool has_bias = owned.problem.bias.data != nullptr;
  if (has_bias && random.chance(0.8)) {
    for (int i = 0; i < 4; ++i) request.bias[i] = random.chance(0.5) ? owned.logits_extent()[i] : 1;
  }
  if (random.chance(0.4)) {
    request.query = random.chance(0.5);
    request.key = random.chance(0.5);
    request.value = random.chance(0.5);
  }
  return request;
}

TEST(KernelGradientsProperty, OfRandomProblemsAreComputedByEveryKernel) {
  testing::for_seeds(2'000, [](uint64_t seed) {
    Random random(seed);
    OwnedProblem owned = testing::random_problem(random, 200'000);
    owned.problem.dropped = random.pick<uint32_t>({0, 0, 0, 1, 6554, 32768, 65000});
    owned.problem.dropout_seed = seed << 32 | seed;
    const GradientRequest request = any_request(owned, random);
    testing::expect_all_accurate(owned.problem, request, {.reversed = random.chance(0.5)});
  });
}

}  // namespace
}  // namespace attn::kernel
