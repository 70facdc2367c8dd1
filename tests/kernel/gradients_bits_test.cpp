// The same bits of gradients, whatever else is computed beside, in which order, by how many threads.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "support/batch_alone.h"
#include "support/gradient_request.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/plain_inputs.h"
#include "support/problem_grids.h"
#include "support/run_gradients.h"

namespace attn::kernel {
namespace {

using testing::GradientAnswer;
using testing::GradientRequest;
using testing::OwnedProblem;
using testing::Random;
using testing::WrittenGradient;

/// Several tiles and blocks; groups of heads; few queries over many keys, and the reverse.
constexpr testing::Sizes kShapes[] = {{2, 4, 2, 67, 140, 9, 10},
                                      {2, 6, 3, 130, 70, 16, 8},
                                      {2, 4, 1, 1, 1100, 16, 16},
                                      {2, 2, 2, 300, 5, 8, 17}};

/// Calls check for some problems, with biases' gradients and dropout now and then.
void for_some_problems(
    const std::function<void(OwnedProblem&, const GradientRequest&, Random&)>& check) {
  Random random(41);
  testing::for_three_of_every_shape(kShapes, random, [&](OwnedProblem& owned, int i) {
    owned.problem.dropped = i == 1 ? 20000 : 0;
    if (i == 2) {
      testing::set_bias(owned, {0, 1, 2, 3}, Element::kFloat32, testing::bias_numbers(random));
    }
    GradientRequest request = testing::random_request(owned, random, i == 1);
    if (owned.problem.bias.data != nullptr) {
      for (int d = 0; d < 4; ++d) {
        request.bias[d] = random.chance(0.5) ? owned.logits_extent()[d] : 1;
      }
    }
    SCOPED_TRACE(testing::describe(owned.problem) + "; " + testing::describe(request));
    check(owned, request, random);
  });
}

void expect_same(const GradientAnswer& actual, const GradientAnswer& expected) {
  EXPECT_TRUE(actual.query.bits == expected.query.bits) << "query";
  EXPECT_TRUE(actual.key.bits == expected.key.bits) << "key";
  EXPECT_TRUE(actual.value.bits == expected.value.bits) << "value";
  EXPECT_TRUE(actual.bias.bits == expected.bias.bits) << "bias";
}

TEST(KernelGradientsBits, DoNotDependOnOrderOrThreadsOfTheTasks) {
  for_some_problems([](const OwnedProblem& owned, const GradientRequest& request, Random&) {
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const GradientAnswer once = testing::run_gradients(kernel, owned.problem, request);
      for (const testing::RunOptions& options :
           {testing::RunOptions{}, testing::RunOptions{.reversed = true},
            testing::RunOptions{.threads = 2},
            testing::RunOptions{.reversed = true, .threads = 3}}) {
        expect_same(testing::run_gradients(kernel, owned.problem, request, options), once);
      }
    }
  });
}

void expect_part(const char* name, const WrittenGradient& part, const WrittenGradient& whole,
                 int64_t b) {
  const auto size = static_cast<int64_t>(part.bits.size());
  ASSERT_LE((b + 1) * size, static_cast<int64_t>(whole.bits.size())) << name;
  EXPECT_TRUE(std::equal(part.bits.begin(), part.bits.end(), whole.bits.begin() + b * size))
      << name << " of batch " << b;
}

TEST(KernelGradientsBits, OfABatchDoNotDependOnItsBatchmates) {  // C34
  for_some_problems([](const OwnedProblem& owned, const GradientRequest& request, Random&) {
    const Problem& p = owned.problem;
    const int64_t rows = p.heads * p.queries * size_of(testing::sum_element(p.element));
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const GradientAnswer together = testing::run_gradients(kernel, p, request);
      // Which weights are dropped depends on the batch's number.
      for (int64_t b = 0; b < (p.dropped == 0 ? p.batches : 1); ++b) {
        GradientRequest single = request;
        single.output_gradient = testing::at_batch(request.output_gradient, b, size_of(p.element));
        if (request.logsumexp_gradient != nullptr) {
          single.logsumexp_gradient =
              static_cast<const std::byte*>(request.logsumexp_gradient) + b * rows;
        }
        const bool bias_of_batches = request.bias[0] == p.batches;
        if (request.wants_bias()) single.bias[0] = 1;
        const GradientAnswer alone = testing::run_gradients(kernel, testing::alone(p, b), single);
        expect_part("query", alone.query, together.query, b);
        expect_part("key", alone.key, together.key, b);
        expect_part("value", alone.value, together.value, b);
        if (bias_of_batches) expect_part("bias", alone.bias, together.bias, b);
      }
    }
  });
}

TEST(KernelGradientsBits, OfQueryKeyAndValueDoNotDependOnWhichOfThemAreAskedFor) {
  for_some_problems([](const OwnedProblem& owned, const GradientRequest& request, Random&) {
    GradientRequest all = request;
    all.bias = {};
    GradientRequest query = all, key = all, value = all;
    query.key = query.value = false;
    key.query = key.value = false;
    value.query = value.key = false;
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto run = [&](const GradientRequest& r) {
        return testing::run_gradients(kernel, owned.problem, r);
      };
      expect_same({run(query).query, run(key).key, run(value).value, {}}, run(all));
    }
  });
}

TEST(KernelGradientsBits, DoNotDependOnHowRowsLieInMemory) {  // C11
  for_some_problems([](OwnedProblem& owned, const GradientRequest& request, Random& random) {
    Problem other = owned.problem;
    GradientRequest other_request = request;
    const auto moved = [&](const View& view, const testing::Extent& extent) {
      const View rows = random.chance(0.5) ? testing::strides_of(extent, {0, 2, 1, 3})
                                           : testing::strides_of(extent, {2, 1, 0, 3});
      return owned.tensor(extent, rows, other.element, [&](auto... at) {
        return testing::read(other.element, view.data, testing::index_of(view, at...));
      });
    };
    other.query = moved(other.query, owned.query_extent());
    other.key = moved(other.key, owned.key_extent());
    other.value = moved(other.value, owned.value_extent());
    other_request.output_gradient = moved(request.output_gradient, owned.output_extent());
    SCOPED_TRACE(testing::describe(other));
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      expect_same(testing::run_gradients(kernel, other, other_request),
                  testing::run_gradients(kernel, owned.problem, request));
    }
  });
}

}  // namespace
}  // namespace attn::kernel
