// Random problems: any sizes, strides, masks and options at once.
//
// A failure prints the seed of its problem; ATTN_TEST_SEED=<seed> ATTN_TEST_CASES=1 runs it alone.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <cstdint>

#include "support/expect_accurate.h"
#include "support/owned_problem.h"
#include "support/plain_problem.h"
#include "support/random_problem.h"
#include "support/repetitions.h"
#include "support/run_kernel.h"

namespace attn::kernel {
namespace {

using testing::OwnedProblem;
using testing::Random;

TEST(KernelProperty, RandomProblemsAreComputedByEveryKernel) {
  testing::for_seeds(4'000, [](uint64_t seed) {
    Random random(seed);
    OwnedProblem owned = testing::random_problem(random, 500'000);
    owned.problem.dropped = random.pick<uint32_t>({0, 0, 0, 0, 1, 6554, 32768, 60000, 65536});
    owned.problem.dropout_seed = seed << 32 | seed;
    const bool weights = random.chance(0.3), reversed = random.chance(0.5);
    SCOPED_TRACE(testing::describe(owned.problem));
    const testing::PlainAnswer plain = testing::PlainProblem(owned.problem).solve();
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const testing::Answer answer = testing::run(
          kernel, owned.problem, {.logsumexp = true, .weights = weights, .reversed = reversed});
      testing::expect_accurate(owned.problem, answer, plain);
    }
  });
}

}  // namespace
}  // namespace attn::kernel
