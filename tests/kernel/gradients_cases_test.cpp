// What goes wrong with gradients elsewhere, each with its right outcome by hand.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "support/expect_gradients.h"
#include "support/gradient_request.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/plain_gradients.h"
#include "support/run_gradients.h"

namespace attn::kernel {
namespace {

using testing::Draw;
using testing::expect_all_accurate;
using testing::GradientAnswer;
using testing::GradientRequest;
using testing::kElements;
using testing::OwnedProblem;
using testing::Random;

double zero(int64_t, int64_t, int64_t, int64_t) { return 0.0; }
double one(int64_t, int64_t, int64_t, int64_t) { return 1.0; }

Draw column_of(std::vector<double> rows) {
  return [rows = std::move(rows)](int64_t, int64_t, int64_t row, int64_t) { return rows[row]; };
}

/// sin(a · n + b) of the n-th element.
Draw sine(const testing::Extent& extent, double a, double b) {
  return [=](int64_t batch, int64_t h, int64_t r, int64_t c) {
    const int64_t n = ((batch * extent[1] + h) * extent[2] + r) * extent[3] + c;
    return std::sin(a * static_cast<double>(n) + b);
  };
}

GradientRequest request_of(OwnedProblem& owned, const Draw& output_gradient) {
  GradientRequest request;
  request.output_gradient =
      owned.tensor(owned.output_extent(), testing::strides_of(owned.output_extent()),
                   owned.problem.element, output_gradient);
  return request;
}

TEST(KernelGradientsCases, OfNothingButABias) {  // C25
  const testing::Extent extent{1, 2, 3, 4};
  OwnedProblem owned(
      {.heads = 2, .key_heads = 2, .queries = 3, .keys = 3, .head_dim = 4, .value_dim = 4},
      Element::kFloat64, sine(extent, 0.7, 0.1), sine(extent, 0.9, 0.4), sine(extent, 1.3, 0.8));
  const testing::Extent logits{1, 1, 3, 3};
  testing::set_bias(owned, {2, 3}, Element::kFloat64, [&](int64_t, int64_t, int64_t i, int64_t j) {
    return sine(logits, 0.2, 0.5)(0, 0, i, j);
  });
  GradientRequest request = request_of(owned, sine(extent, 0.3, 0.6));
  request.query = request.key = request.value = false;
  request.bias = logits;
  const double expected[] = {-0.277618751646, 0.160478640852, 0.117140110793};  // by numpy
  for (const Kernel& kernel : supported_kernels()) {
    SCOPED_TRACE(kernel.name);
    const auto bias = testing::run_gradients(kernel, owned.problem, request).bias.numbers;
    for (int j = 0; j < 3; ++j) EXPECT_NEAR(bias[j], expected[j], 1e-12);
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(bias[3 * i] + bias[3 * i + 1] + bias[3 * i + 2], 0.0, 1e-15);
    }
  }
}

TEST(KernelGradientsCases, OneKeyPassesTheOutputsGradientOn) {
  // Its weight is 1 whatever the logit: values get the sum of the rows' gradients, logits nothing.
  Random random(71);
  for (const Element element : kElements) {
    for (const int64_t queries : {1, 3, 70}) {
      OwnedProblem owned({2, 2, 1, queries, 1, 8, 9}, element, random);
      const GradientRequest request = request_of(owned, one);
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        const GradientAnswer answer = testing::run_gradients(kernel, owned.problem, request);
        // Each weight is off by some digits of a logit; 140 is a number of every element.
        for (const double x : answer.value.numbers) {
          EXPECT_NEAR(x, 2.0 * static_cast<double>(queries), 1e-5 * static_cast<double>(queries));
        }
      }
      expect_all_accurate(owned.problem, request);
    }
  }
}

TEST(KernelGradientsCases, MoreKeysAndQueriesThan16BitsCount) {  // C17
  for (const int64_t length : {32769, 65537}) {
    const double n = static_cast<double>(length);
    OwnedProblem keys({.keys = length}, Element::kFloat32, zero, zero, one);
    OwnedProblem queries({.queries = length}, Element::kFloat32, zero, one, one);
    const GradientRequest of_keys = request_of(keys, one), of_queries = request_of(queries, one);
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const GradientAnswer many_keys = testing::run_gradients(kernel, keys.problem, of_keys);
      for (size_t j = 0; j < many_keys.value.numbers.size(); ++j) {
        // log n is below 12, and its last digit 2^-21; as much comes from the sum.
        ASSERT_NEAR(many_keys.value.numbers[j], 1.0 / n, 1.0 / n * 0x1p-20) << j;
      }
      // Integers below 2^24 are summed exactly.
      const GradientAnswer many = testing::run_gradients(kernel, queries.problem, of_queries);
      EXPECT_EQ(many.value.numbers, std::vector<double>{n});
      EXPECT_EQ(many.query.numbers, std::vector<double>(static_cast<size_t>(length), 0.0));
    }
  }
}

TEST(KernelGradientsCases, HeadsOfAGroupAddTheirKeysGradients) {
  Random random(72);
  for (const Element element : {Element::kFloat32, Element::kFloat64}) {
    OwnedProblem shared({2, 6, 2, 19, 70, 8, 9}, element, random);
    const GradientRequest request = testing::random_request(shared, random);
    OwnedProblem repeated({2, 6, 6, 19, 70, 8, 9}, element);
    repeated.problem.query = shared.problem.query;
    const auto of_group = [&](const View& view, const testing::Extent& extent) {
      return repeated.tensor(extent, testing::strides_of(extent), element,
                             [&](int64_t b, int64_t h, int64_t r, int64_t c) {
                               return testing::read(element, view.data,
                                                    testing::index_of(view, b, h / 3, r, c));
                             });
    };
    repeated.problem.key = of_group(shared.problem.key, repeated.key_extent());
    repeated.problem.value = of_group(shared.problem.value, repeated.value_extent());
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const GradientAnswer together = testing::run_gradients(kernel, shared.problem, request);
      const GradientAnswer apart = testing::run_gradients(kernel, repeated.problem, request);
      const auto expect_sums = [](const std::vector<double>& sums, const std::vector<double>& terms,
                                  int64_t head) {
        for (int64_t i = 0; i < static_cast<int64_t>(sums.size()); ++i) {
          const int64_t first = i / head * 3 * head + i % head;
          const double sum = terms[first] + terms[first + head] + terms[first + 2 * head];
          ASSERT_NEAR(sums[i], sum, 1e-5) << i;  // numbers up to 10 in another order
        }
      };
      expect_sums(together.key.numbers, apart.key.numbers, 70 * 8);
      expect_sums(together.value.numbers, apart.value.numbers, 70 * 9);
      for (size_t i = 0; i < apart.query.numbers.size(); ++i) {
        ASSERT_NEAR(together.query.numbers[i], apart.query.numbers[i], 1e-5) << i;
      }
    }
  }
}

/// One query whose logits are the keys, one of which takes all the weight.
void expect_one_hot(const std::vector<double>& logits, Squash squash, double limit, size_t hot) {
  for (const Element element : {Element::kFloat32, Element::kFloat64, Element::kBFloat16}) {
    OwnedProblem owned({.keys = static_cast<int64_t>(logits.size()), .value_dim = 2}, element, one,
                       column_of(logits), [](int64_t, int64_t, int64_t j, int64_t x) {
                         return static_cast<double>(1 + j + 2 * x);
                       });
    owned.problem.squash = squash;
    owned.problem.squash_limit = limit;
    const GradientRequest request =
        request_of(owned, [](int64_t, int64_t, int64_t, int64_t x) { return x == 0 ? 1.0 : 2.0; });
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(owned.problem));
      const GradientAnswer answer = testing::run_gradients(kernel, owned.problem, request);
      for (size_t j = 0; j < logits.size(); ++j) {
        EXPECT_EQ(answer.value.numbers[2 * j], j == hot ? 1.0 : 0.0);
        EXPECT_EQ(answer.value.numbers[2 * j + 1], j == hot ? 2.0 : 0.0);
        EXPECT_EQ(answer.key.numbers[j], 0.0);
      }
      EXPECT_EQ(answer.query.numbers[0], 0.0);
    }
  }
}

TEST(KernelGradientsCases, LogitsOfAnySizeDoNotOverflow) {  // C18
  expect_one_hot({1e4, -1e4}, Squash::kNone, 0.0, 0);
  expect_one_hot({-1e4, 0, 1e4, 9e3}, Squash::kNone, 0.0, 2);
  expect_one_hot({3e38, 0}, Squash::kNone, 0.0, 0);
}

TEST(KernelGradientsCases, ClipOfLargeLogitsSaturates) {  // C19
  // At ±400, where the slope is 0; e^-800 is 0 in float64 as well.
  expect_one_hot({-3e38, 3e38}, Squash::kClip, 400.0, 1);
  expect_one_hot({-3e38, 3e38, -1e4}, Squash::kSoftcap, 400.0, 1);
  expect_one_hot({1e4, -1e4, -200}, Squash::kClip, 400.0, 0);
}

TEST(KernelGradientsCases, SaturatedClipsPassNothingOnToQueriesAndKeys) {  // C19
  // Equal logits, of which all have weight; a tanh of 1 has the slope 0.
  Random random(73);
  for (const Element element : {Element::kFloat32, Element::kFloat64, Element::kBFloat16}) {
    for (const Squash squash : {Squash::kClip, Squash::kSoftcap}) {
      for (const double limit : {2.0, 49.0}) {  // 49 · (1 / 49) is not 1 in float32
        OwnedProblem owned(
            {.keys = 40, .value_dim = 3}, element, one, [](auto...) { return 1e5; },
            OwnedProblem::normal(random));
        owned.problem.squash = squash;
        owned.problem.squash_limit = limit;
        const GradientRequest request = testing::random_request(owned, random);
        for (const Kernel& kernel : supported_kernels()) {
          SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(owned.problem));
          const GradientAnswer answer = testing::run_gradients(kernel, owned.problem, request);
          EXPECT_EQ(answer.query.numbers, std::vector<double>{0.0});
          EXPECT_EQ(answer.key.numbers, std::vector<double>(40, 0.0));
        }
      }
    }
  }
}

}  // namespace
}  // namespace attn::kernel
