// The same bits, whatever else is computed beside, in which order, by how many threads.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <vector>

#include "support/batch_alone.h"
#include "support/owned_problem.h"
#include "support/problem_grids.h"
#include "support/run_kernel.h"

namespace attn::kernel {
namespace {

using testing::OwnedProblem;
using testing::Random;

/// Several tiles and blocks; few queries over many keys, whose keys are split.
constexpr testing::Sizes kShapes[] = {
    {2, 4, 2, 67, 140, 9, 10}, {2, 4, 1, 1, 1100, 16, 16}, {2, 6, 3, 5, 700, 8, 17}};

/// Calls check for three problems of every shape.
void for_some_problems(const std::function<void(OwnedProblem&, Random&)>& check) {
  Random random(5);
  testing::for_three_of_every_shape(kShapes, random,
                                    [&](OwnedProblem& owned, int) { check(owned, random); });
}

TEST(KernelBits, OfABatchDoNotDependOnItsBatchmates) {  // C34
  for_some_problems([](const OwnedProblem& owned, Random&) {
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto together = testing::run(kernel, owned.problem).bits;
      const auto size = static_cast<int64_t>(together.size()) / owned.problem.batches;
      for (int64_t b = 0; b < owned.problem.batches; ++b) {
        const auto single = testing::run(kernel, testing::alone(owned.problem, b)).bits;
        EXPECT_TRUE(std::equal(single.begin(), single.end(), together.begin() + b * size,
                               together.begin() + (b + 1) * size))
            << "batch " << b;
      }
    }
  });
}

TEST(KernelBits, DoNotDependOnNaNInOtherBatchesHeadsAndQueries) {
  // Heads of one group share keys, so the NaN are in the queries of one head and one row.
  for_some_problems([](OwnedProblem& owned, Random&) {
    Problem& p = owned.problem;
    const int64_t size = size_of(p.element);
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto before = testing::run(kernel, p).bits;
      Problem changed = p;
      const int64_t row = p.queries / 2;
      changed.query = owned.tensor(owned.query_extent(), testing::strides_of(owned.query_extent()),
                                   p.element, [&](int64_t b, int64_t h, int64_t i, int64_t x) {
                                     if (b == 0 && h == 1 && i == row)
                                       return std::numeric_limits<double>::quiet_NaN();
                                     return testing::read(p.element, p.query.data,
                                                          b * p.query.batch + h * p.query.head +
                                                              i * p.query.row + x * p.query.column);
                                   });
      const auto after = testing::run(kernel, changed).bits;
      const int64_t first = (p.queries + row) * p.value_dim * size;
      const int64_t last = first + p.value_dim * size;
      EXPECT_TRUE(std::equal(before.begin(), before.begin() + first, after.begin()));
      EXPECT_TRUE(std::equal(before.begin() + last, before.end(), after.begin() + last));
    }
  });
}

TEST(KernelBits, DoNotDependOnOrderOrThreadsOfTheTasks) {
  for_some_problems([](const OwnedProblem& owned, Random&) {
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto bits = testing::run(kernel, owned.problem).bits;
      EXPECT_TRUE(bits == testing::run(kernel, owned.problem, {.reversed = true}).bits);
      EXPECT_TRUE(bits == testing::run(kernel, owned.problem, {.threads = 4}).bits);
      EXPECT_TRUE(bits ==
                  testing::run(kernel, owned.problem,
                               {.logsumexp = true, .weights = true, .reversed = true, .threads = 3})
                      .bits);
    }
  });
}

TEST(KernelBits, OfTheOutputDoNotDependOnWhatElseIsAskedFor) {
  for_some_problems([](const OwnedProblem& owned, Random&) {
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto bits = testing::run(kernel, owned.problem).bits;
      EXPECT_TRUE(bits == testing::run(kernel, owned.problem, {.logsumexp = true}).bits);
      EXPECT_TRUE(bits == testing::run(kernel, owned.problem, {.weights = true}).bits);
    }
  });
}

TEST(KernelBits, DoNotDependOnHowRowsLieInMemory) {  // C11
  for_some_problems([](OwnedProblem& owned, Random& random) {
    Problem other = owned.problem;
    const auto moved = [&](const View& view, const testing::Extent& extent, Element element) {
      const View rows = random.chance(0.5) ? testing::strides_of(extent, {0, 2, 1, 3})
                                           : testing::strides_of(extent, {2, 1, 0, 3});
      return owned.tensor(extent, rows, element, [&](int64_t b, int64_t h, int64_t r, int64_t c) {
        return testing::read(element, view.data,
                             b * view.batch + h * view.head + r * view.row + c * view.column);
      });
    };
    other.query = moved(other.query, owned.query_extent(), other.element);
    other.key = moved(other.key, owned.key_extent(), other.element);
    other.value = moved(other.value, owned.value_extent(), other.element);
    if (other.bias.data != nullptr) {
      other.bias = moved(other.bias, owned.logits_extent(), other.bias_element);
    }
    SCOPED_TRACE(testing::describe(other));
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      EXPECT_TRUE(testing::run(kernel, owned.problem).bits == testing::run(kernel, other).bits);
    }
  });
}

}  // namespace
}  // namespace attn::kernel
