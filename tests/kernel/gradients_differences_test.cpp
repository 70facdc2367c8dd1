// The plain gradients, and the kernel's in float64, against differences of the plain outputs: what all
// other tests of gradients are held against, is tested here.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "support/expect_gradients.h"
#include "support/gradient_request.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/plain_gradients.h"
#include "support/plain_problem.h"
#include "support/repetitions.h"
#include "support/run_gradients.h"

namespace attn::kernel {
namespace {

using testing::GradientRequest;
using testing::OwnedProblem;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// What the gradients are those of: output and logsumexp, weighted with their own gradients.
double objective(const Problem& p, const GradientRequest& request) {
  const testing::PlainAnswer plain = testing::PlainProblem(p).solve();
  long double sum = 0.0;
  for (int64_t b = 0, at = 0; b < p.batches; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t i = 0; i < p.queries; ++i) {
        for (int64_t x = 0; x < p.value_dim; ++x, ++at) {
          sum += testing::read(p.element, request.output_gradient.data,
                               testing::index_of(request.output_gradient, b, h, i, x)) *
                 static_cast<long double>(plain.output[at]);
        }
      }
    }
  }
  for (size_t row = 0; request.logsumexp_gradient != nullptr && row < plain.logsumexp.size();
       ++row) {
    if (plain.logsumexp[row] < -1e8) continue;  // of masked keys alone: constant
    sum += static_cast<const double*>(request.logsumexp_gradient)[row] *
           static_cast<long double>(plain.logsumexp[row]);
  }
  return static_cast<double>(sum);
}

/// Central differences of the objective by the numbers of an input without gaps, in their order.
std::vector<double> differences(const Problem& p, const GradientRequest& request, const View& input,
                                int64_t count) {
  // Third derivatives of up to 1e3 cost h²/6 · 1e3 = 1e-8, digits lost in an objective of some 10
  // 10 · 2^-53 / h = 1e-10.
  constexpr double h = 1e-5;
  std::vector<double> result;
  // The problem views as const what its owner in the test may change.
  auto* numbers = static_cast<double*>(const_cast<void*>(input.data));
  for (int64_t i = 0; i < count; ++i) {
    const double number = numbers[i];
    numbers[i] = number + h;
    const double above = objective(p, request);
    numbers[i] = number - h;
    const double below = objective(p, request);
    numbers[i] = number;
    result.push_back(number == -kInfinity ? 0.0 : (above - below) / (2.0 * h));
  }
  return result;
}

void expect_differences(const char* name, const std::vector<double>& gradient,
                        const std::vector<double>& expected) {
  ASSERT_EQ(gradient.size(), expected.size()) << name;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(gradient[i], expected[i], 1e-7) << name << " gradient at " << i;
  }
}

void expect_all(OwnedProblem& owned, const GradientRequest& request) {
  const Problem& p = owned.problem;
  SCOPED_TRACE(testing::describe(p) + "; " + testing::describe(request));
  const auto count = [](const testing::Extent& e) { return e[0] * e[1] * e[2] * e[3]; };
  const auto query = differences(p, request, p.query, count(owned.query_extent()));
  const auto key = differences(p, request, p.key, count(owned.key_extent()));
  const auto value = differences(p, request, p.value, count(owned.value_extent()));
  std::vector<double> bias;
  if (request.wants_bias()) bias = differences(p, request, p.bias, count(request.bias));

  const testing::PlainGradients plain = testing::PlainGradientProblem(p, request).solve();
  expect_differences("query", plain.query.numbers, query);
  expect_differences("key", plain.key.numbers, key);
  expect_differences("value", plain.value.numbers, value);
  expect_differences("bias", plain.bias.numbers, bias);
  for (const Kernel& kernel : supported_kernels()) {
    SCOPED_TRACE(kernel.name);
    const testing::GradientAnswer answer = testing::run_gradients(kernel, p, request);
    expect_differences("query", answer.query.numbers, query);
    expect_differences("key", answer.key.numbers, key);
    expect_differences("value", answer.value.numbers, value);
    expect_differences("bias", answer.bias.numbers, bias);
  }
}

TEST(KernelGradientsDifferences, AgreeForEveryMaskSquashMaskedScoreAndDropout) {
  Random random(21);
  testing::Sample sample;
  for (const testing::MaskKind& mask : testing::mask_kinds()) {
    SCOPED_TRACE(mask.name);
    for (const Squash squash : {Squash::kNone, Squash::kClip, Squash::kSoftcap}) {
      for (const double masked_score : {-kInfinity, -1e9, -1.0}) {
        for (const uint32_t dropped : {0, 20000}) {
          if (!sample.takes_next()) continue;
          OwnedProblem owned({2, 4, 2, 3, 5, 3, 2}, Element::kFloat64, random);
          mask.add(owned, random);
          owned.problem.squash = squash;
          owned.problem.squash_limit = 2.0;
          owned.problem.masked_score = masked_score;
          owned.problem.dropped = dropped;
          owned.problem.dropout_seed = 7;
          expect_all(owned, testing::random_request(owned, random, random.chance(0.5)));
        }
      }
    }
  }
}

TEST(KernelGradientsDifferences, AgreeForBiasesOfEveryShape) {
  Random random(22);
  for (int dependence = 0; dependence < 16; ++dependence) {
    for (const double masked_score : {-kInfinity, -1.0}) {
      OwnedProblem owned({2, 4, 2, 3, 5, 3, 2}, Element::kFloat64, random);
      GradientRequest request = testing::random_request(owned, random);
      // Without gaps, of size 1 and stride 0 where it does not depend on a dimension.
      const testing::Extent logits = owned.logits_extent();
      View strides;
      int64_t step = 1;
      for (int dimension = 3; dimension >= 0; --dimension) {
        const bool depends = (dependence >> dimension & 1) != 0;
        request.bias[dimension] = depends ? logits[dimension] : 1;
        int64_t& stride = dimension == 3   ? strides.column
                          : dimension == 2 ? strides.row
                          : dimension == 1 ? strides.head
                                           : strides.batch;
        stride = depends ? step : 0;
        step *= request.bias[dimension];
      }
      owned.problem.bias = owned.tensor(logits, strides, Element::kFloat64,
                                        [&](auto...) { return random.normal(); });
      owned.problem.bias_element = Element::kFloat64;
      testing::set_causal(owned, 1);
      owned.problem.masked_score = masked_score;
      expect_all(owned, request);
    }
  }
}

}  // namespace
}  // namespace attn::kernel
