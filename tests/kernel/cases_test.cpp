// What went wrong elsewhere, each with its right outcome by hand.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/expect_accurate.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/run_kernel.h"

namespace attn::kernel {
namespace {

using testing::Draw;
using testing::kElements;
using testing::OwnedProblem;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double zero(int64_t, int64_t, int64_t, int64_t) { return 0.0; }
double one(int64_t, int64_t, int64_t, int64_t) { return 1.0; }
double row_number(int64_t, int64_t, int64_t row, int64_t) { return static_cast<double>(row); }

Draw column_of(std::vector<double> rows) {
  return [rows = std::move(rows)](int64_t, int64_t, int64_t row, int64_t) { return rows[row]; };
}

/// Half the distance between neighbours of 1.
double half_unit(Element element) {
  switch (element) {
    case Element::kFloat32:
      return 0x1p-24;
    case Element::kFloat64:
      return 0x1p-53;
    case Element::kBFloat16:
      return 0x1p-8;
    case Element::kFloat16:
      return 0x1p-11;
  }
  return 0.0;
}

void expect_numbers(const std::vector<double>& actual, const std::vector<double>& expected,
                    double relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(testing::agree(actual[i], expected[i], relative * std::abs(expected[i])))
        << actual[i] << " instead of " << expected[i] << " at " << i;
  }
}

/// Weights of one query whose logits are the keys.
void expect_weights(const OwnedProblem& owned, const std::vector<double>& expected,
                    double relative) {
  for (const Kernel& kernel : supported_kernels()) {
    SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(owned.problem));
    expect_numbers(testing::run(kernel, owned.problem, {.weights = true}).weights, expected,
                   relative);
  }
}

OwnedProblem logits(const std::vector<double>& numbers, Element element) {
  return {{.keys = static_cast<int64_t>(numbers.size())}, element, one, column_of(numbers), zero};
}

TEST(KernelCases, RuleOfFullyMaskedRows) {  // C03
  for (const Element element : kElements) {
    OwnedProblem owned = logits({0, 1, 2}, element);
    testing::set_attend(owned, {}, zero);
    expect_weights(owned, {0, 0, 0}, 0.0);
    owned.problem.nan_when_fully_masked = true;
    expect_weights(owned, {kNaN, kNaN, kNaN}, 0.0);
    for (const double fill : {-1e9, -1e20 / 8.0}) {
      owned.problem.masked_score = fill;
      expect_weights(owned, {1.0 / 3, 1.0 / 3, 1.0 / 3}, 2.0 * half_unit(element));
    }
  }
  // Added instead of written, a fill keeps what the logits say, as long as the sum can hold it.
  OwnedProblem added = logits({0, 1, 2}, Element::kFloat64);
  testing::set_bias(added, {}, Element::kFloat64, [](auto...) { return -1e9; });
  const double sum = 1.0 + std::exp(-1.0) + std::exp(-2.0);
  expect_weights(added, {std::exp(-2.0) / sum, std::exp(-1.0) / sum, 1.0 / sum}, 1e-15);
}

TEST(KernelCases, CausalAlignmentOfUnequalLengths) {  // C05
  const auto outputs = [](int64_t queries, int64_t keys, int64_t offset) {
    OwnedProblem owned({.queries = queries, .keys = keys}, Element::kFloat64, zero, zero,
                       row_number);
    testing::set_causal(owned, offset);
    return owned;
  };
  struct Case {
    int64_t queries, keys, offset;
    std::vector<double> expected;
  };
  const Case cases[] = {{2, 5, 0, {0, 0.5}},
                        {2, 5, 3, {1.5, 2}},
                        {5, 2, 0, {0, 0.5, 0.5, 0.5, 0.5}},
                        {5, 2, -3, {0, 0, 0, 0, 0.5}}};
  for (const Case& c : cases) {
    const OwnedProblem owned = outputs(c.queries, c.keys, c.offset);
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      expect_numbers(testing::run(kernel, owned.problem).output, c.expected, 0.0);
    }
  }
}

TEST(KernelCases, SlidingWindowWithLeadingBlocksWhollyMasked) {  // C08
  for (const Element element : {Element::kFloat32, Element::kFloat64}) {
    OwnedProblem owned({.queries = 600, .keys = 600}, element, zero, zero, row_number);
    testing::set_attend(owned, {2, 3}, [](int64_t, int64_t, int64_t i, int64_t j) {
      return j <= i && j > i - 10 ? 1.0 : 0.0;
    });
    std::vector<double> expected;
    for (int i = 0; i < 600; ++i) expected.push_back(i < 9 ? i / 2.0 : i - 4.5);
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      // Small integers times 1 are summed exactly; 1/n and its product are rounded.
      expect_numbers(testing::run(kernel, owned.problem).output, expected, 4 * half_unit(element));
    }
  }
}

TEST(KernelCases, NaNAndInfinityBehindAMaskDoNotLeak) {  // C09
  for (const Element element : kElements) {
    for (const double bad : {kNaN, kInfinity}) {
      OwnedProblem owned({.keys = 3}, element, zero, zero, column_of({1, 2, bad}));
      testing::set_block(owned, {3},
                         [](int64_t, int64_t, int64_t, int64_t j) { return j == 2 ? 1.0 : 0.0; });
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        EXPECT_EQ(testing::run(kernel, owned.problem).output, std::vector<double>{1.5});
      }
    }
  }
}

TEST(KernelCases, MoreKeysAndQueriesThan16BitsCount) {  // C17
  for (const int64_t length : {32769, 65537}) {
    const double n = static_cast<double>(length);
    const auto last_counts_n = [length, n](int64_t, int64_t, int64_t row, int64_t) {
      return row == length - 1 ? n : 1.0;
    };
    const OwnedProblem keys({.keys = length}, Element::kFloat32, zero, zero, last_counts_n);
    const OwnedProblem queries({.queries = length}, Element::kFloat32, last_counts_n, one,
                               [n](auto...) { return n; });
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      // Integers below 2^24 are summed exactly.
      expect_numbers(testing::run(kernel, keys.problem).output, {(2 * n - 1) / n}, 2 * 0x1p-24);
      expect_numbers(testing::run(kernel, queries.problem).output, std::vector<double>(length, n),
                     0.0);
    }
  }
}

TEST(KernelCases, LogitsOfAnySizeDoNotOverflow) {  // C18
  // The weights' error is that of the logits, to which their inputs' rounding does not count.
  const auto expect = [](std::vector<double> numbers, std::vector<double> expected) {
    for (const Element element : {Element::kFloat32, Element::kFloat64}) {
      const OwnedProblem owned = logits(numbers, element);
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        const auto weights = testing::run(kernel, owned.problem, {.weights = true}).weights;
        for (size_t i = 0; i < expected.size(); ++i) {
          // 151.29 − 150.29 in float32 is 1 but for 2^-17.
          EXPECT_NEAR(weights[i], expected[i], 1e-5);
        }
      }
    }
  };
  const double larger = 1.0 / (1.0 + std::exp(-1.0));
  expect({151.29, 150.29}, {larger, 1.0 - larger});
  expect({1e4, -1e4}, {1, 0});
  expect({-1e4, -1e4 - 1}, {larger, 1.0 - larger});
  expect({3e38, 0}, {1, 0});
  expect({-3e38, -3e38}, {0.5, 0.5});
}

TEST(KernelCases, ClipOfLargeLogitsSaturates) {  // C19
  const std::vector<double> us = {0.3, 1,    -1,   9,     -9,   100,       1e3,       5e3,
                                  1e4, -1e4, 3e38, -3e38, 1e-3, kInfinity, -kInfinity};
  for (const Element element : {Element::kFloat32, Element::kFloat64}) {
    for (const double u : us) {
      for (const Squash squash : {Squash::kClip, Squash::kSoftcap}) {
        OwnedProblem owned = logits({u}, element);
        owned.problem.squash = squash;
        owned.problem.squash_limit = 50.0;
        const double exact_u = testing::read(element, owned.problem.key.data, 0);
        const double expected =
            50.0 * std::tanh(squash == Squash::kClip ? exact_u : exact_u / 50.0);
        for (const Kernel& kernel : supported_kernels()) {
          SCOPED_TRACE(std::string(kernel.name) + " u = " + std::to_string(u));
          const auto answer = testing::run(kernel, owned.problem, {.logsumexp = true});
          // A tanh of some digits less than its type has: 8 roundings, and those of the products.
          expect_numbers(answer.logsumexp, {expected}, 16 * half_unit(element));
        }
      }
    }
  }
}

TEST(KernelCases, HalfPrecisionLogitsBeyondItsRange) {  // C20
  // Raw logits of 8388608, scaled ones of 741455, where float16 ends at 65504.
  for (const Element element : {Element::kFloat16, Element::kBFloat16}) {
    const OwnedProblem owned(
        {.keys = 2, .head_dim = 128}, element, [](auto...) { return 256.0; },
        [](int64_t, int64_t, int64_t j, int64_t) { return j == 0 ? 256.0 : 255.0; },
        [](int64_t, int64_t, int64_t j, int64_t) { return j == 0 ? 1.0 : 2.0; });
    expect_weights(owned, {1, 0}, 0.0);
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      EXPECT_EQ(testing::run(kernel, owned.problem).output, std::vector<double>{1.0});
    }
  }
}

TEST(KernelCases, BlockDiagonalMaskEqualsSeparateRuns) {  // C35
  const int64_t borders[] = {0, 128, 256, 384, 543, 600};
  Random random(11);
  OwnedProblem owned({.queries = 600, .keys = 600, .head_dim = 80, .value_dim = 80},
                     Element::kFloat32, random);
  testing::set_attend(owned, {2, 3}, [&](int64_t, int64_t, int64_t i, int64_t j) {
    const auto piece = [&](int64_t x) {
      return std::upper_bound(std::begin(borders), std::end(borders), x);
    };
    return piece(i) == piece(j) ? 1.0 : 0.0;
  });
  for (const Kernel& kernel : supported_kernels()) {
    SCOPED_TRACE(kernel.name);
    const auto masked = testing::run(kernel, owned.problem).output;
    for (size_t piece = 0; piece + 1 < std::size(borders); ++piece) {
      Problem separate = owned.problem;
      separate.attend = {};
      separate.queries = separate.keys = borders[piece + 1] - borders[piece];
      for (View* view : {&separate.query, &separate.key, &separate.value}) {
        view->data = static_cast<const float*>(view->data) + borders[piece] * view->row;
      }
      const testing::PlainAnswer plain = testing::PlainProblem(separate).solve();
      testing::Answer answer;
      answer.output.assign(masked.begin() + borders[piece] * 80,
                           masked.begin() + borders[piece + 1] * 80);
      testing::expect_accurate(separate, answer, plain);
    }
  }
}

}  // namespace
}  // namespace attn::kernel
