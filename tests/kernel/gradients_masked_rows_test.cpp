// Gradients of rows without an open key, of what lies behind masks, and under full dropout.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "support/expect_gradients.h"
#include "support/gradient_request.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/plain_inputs.h"
#include "support/repetitions.h"
#include "support/run_gradients.h"

namespace attn::kernel {
namespace {

using testing::expect_all_accurate;
using testing::GradientAnswer;
using testing::GradientRequest;
using testing::kElements;
using testing::OwnedProblem;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLowest = std::numeric_limits<float>::lowest();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Closes rows of batch 0: by a mask, or by a bias of −∞ whose gradient is asked for.
enum class By { kMask, kBias };

void close_rows(OwnedProblem& owned, GradientRequest& request, By by, int64_t from, int64_t to) {
  const auto closed = [=](int64_t b, int64_t i) { return b == 0 && i >= from && i < to; };
  if (by == By::kMask) {
    testing::set_attend(owned, {0, 2}, [=](int64_t b, int64_t, int64_t i, int64_t) {
      return closed(b, i) ? 0.0 : 1.0;
    });
    return;
  }
  testing::set_bias(owned, {0, 2}, Element::kFloat32, [=](int64_t b, int64_t, int64_t i, int64_t) {
    return closed(b, i) ? -kInfinity : 0.0;
  });
  request.bias = testing::bias_extent(owned, {0, 2});
}

/// Some numbers of a gradient, as a range of indices.
std::vector<double> part(const std::vector<double>& numbers, int64_t first, int64_t count) {
  return {numbers.begin() + first, numbers.begin() + first + count};
}

std::vector<double> zeros(int64_t count) {
  return std::vector<double>(static_cast<size_t>(count), 0.0);
}

TEST(KernelGradientsMaskedRows, AreZeroAndLeaveOthersAsTheyAre) {  // C01
  Random random(51);
  for (const Element element : kElements) {
    for (const By by : {By::kMask, By::kBias}) {
      for (const int64_t rows : {1, 40}) {  // of batch 0: one, or all
        const int64_t first_row = rows == 1 ? 3 : 0;
        OwnedProblem owned({2, 2, 1, 40, 150, 8, 9}, element, random);
        const Problem& p = owned.problem;
        GradientRequest request = testing::random_request(owned, random);
        close_rows(owned, request, by, first_row, first_row + rows);
        expect_all_accurate(p, request);
        for (const Kernel& kernel : supported_kernels()) {
          SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(p));
          const GradientAnswer answer = testing::run_gradients(kernel, p, request);
          for (int64_t h = 0; h < p.heads; ++h) {
            const int64_t first = (h * p.queries + first_row) * p.head_dim;
            EXPECT_EQ(part(answer.query.numbers, first, rows * p.head_dim),
                      zeros(rows * p.head_dim));
          }
          if (rows == 1) continue;
          EXPECT_EQ(part(answer.key.numbers, 0, p.keys * p.head_dim), zeros(p.keys * p.head_dim));
          EXPECT_EQ(part(answer.value.numbers, 0, p.keys * p.value_dim),
                    zeros(p.keys * p.value_dim));
          if (by == By::kMask) continue;
          EXPECT_EQ(part(answer.bias.numbers, 0, p.queries), zeros(p.queries));
        }
      }
    }
  }
}

TEST(KernelGradientsMaskedRows, GiveEveryValueThePlainMeansGradientUnderAFiniteMaskedScore) {
  Random random(52);
  testing::Sample sample;
  for (const Element element : kElements) {
    for (const double masked_score : {-1e9, -1e20 / 16.0, -1e20, kLowest, -2.0}) {
      for (const int64_t keys : {1, 31, 300}) {
        if (!sample.takes_next()) continue;
        OwnedProblem owned({2, 2, 1, 40, keys, 8, 9}, element, random);
        Problem& p = owned.problem;
        p.masked_score = masked_score;
        GradientRequest request = testing::random_request(owned, random);
        close_rows(owned, request, By::kMask, 0, 40);
        expect_all_accurate(p, request);
        for (const Kernel& kernel : supported_kernels()) {
          SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(p));
          const GradientAnswer answer = testing::run_gradients(kernel, p, request);
          // All of batch 0's, both heads of which share the keys.
          EXPECT_EQ(part(answer.query.numbers, 0, 2 * 40 * 8), zeros(2 * 40 * 8));
          EXPECT_EQ(part(answer.key.numbers, 0, keys * 8), zeros(keys * 8));
          for (int64_t x = 0; x < 9; ++x) {
            double sum = 0.0, size = 0.0;
            for (int64_t i = 0; i < 2 * 40; ++i) {
              const double gradient =
                  testing::read(element, request.output_gradient.data,
                                testing::index_of(request.output_gradient, 0, i / 40, i % 40, x));
              sum += gradient / static_cast<double>(keys);
              size += std::abs(gradient) / static_cast<double>(keys);
            }
            // Weights are rounded all alike, at most by 2^-8; 2^-17 is 80 roundings to float32 and more.
            const double unit = element == Element::kBFloat16  ? 0x1p-8
                                : element == Element::kFloat16 ? 0x1p-11
                                                               : 0x1p-17;
            for (int64_t j = 0; j < keys; ++j) {
              ASSERT_NEAR(answer.value.numbers[j * 9 + x], sum,
                          2.0 * unit * std::abs(sum) + 0x1p-17 * size);
            }
          }
        }
      }
    }
  }
}

TEST(KernelGradientsMaskedRows, OfCausalityFollowTheMaskedScore) {
  Random random(53);
  testing::Sample sample;
  for (const Element element : kElements) {
    for (const double masked_score : {-kInfinity, -1e9, -1e20 / 16.0, kLowest}) {
      for (const int64_t offset : {-3, -40, -1000}) {  // some rows, all, and more than all
        if (!sample.takes_next()) continue;
        OwnedProblem owned({1, 2, 2, 40, 300, 8, 9}, element, random);
        testing::set_causal(owned, offset);
        owned.problem.masked_score = masked_score;
        expect_all_accurate(owned.problem, testing::random_request(owned, random));
      }
    }
  }
}

TEST(KernelGradientsMaskedRows, RuledByBothBiasAndMaskTakeTheMaskedScore) {
  // Keys 0 to 9 are masked, and the bias of all is −∞: of the final logits, only the masked score counts.
  Random random(54);
  for (const Element element : kElements) {
    for (const double masked_score : {-1e9, -1e20}) {
      OwnedProblem owned({1, 1, 1, 20, 150, 8, 9}, element, random);
      testing::set_bias(owned, {2, 3}, Element::kFloat32, [](auto...) { return -kInfinity; });
      testing::set_block(owned, {3},
                         [](int64_t, int64_t, int64_t, int64_t j) { return j < 10 ? 1.0 : 0.0; });
      owned.problem.masked_score = masked_score;
      GradientRequest request = testing::random_request(owned, random);
      request.bias = testing::bias_extent(owned, {2, 3});
      expect_all_accurate(owned.problem, request);
    }
  }
}

TEST(KernelGradientsMaskedRows, AreNaNWhereAskedFor) {
  // The values' gradients of the row's batch, as its weights are; the masked keys' logits have none.
  Random random(55);
  for (const Element element : kElements) {
    OwnedProblem owned({2, 2, 2, 40, 150, 8, 9}, element, random);
    owned.problem.nan_when_fully_masked = true;
    GradientRequest request = testing::random_request(owned, random);
    close_rows(owned, request, By::kMask, 3, 4);
    expect_all_accurate(owned.problem, request);
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(owned.problem));
      const GradientAnswer answer = testing::run_gradients(kernel, owned.problem, request);
      const auto is_nan = [](double x) { return std::isnan(x); };
      const auto& value = answer.value.numbers;
      const auto half = value.begin() + static_cast<int64_t>(value.size()) / 2;
      EXPECT_TRUE(std::all_of(value.begin(), half, is_nan));
      EXPECT_TRUE(std::none_of(half, value.end(), is_nan));
      for (const double x : answer.query.numbers) ASSERT_TRUE(std::isfinite(x));
      for (const double x : answer.key.numbers) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

TEST(KernelGradientsMasked, NaNAndInfinityInClosedKeysReachNoGradient) {  // C09
  Random random(56);
  testing::Sample sample;
  const auto closed = [](int64_t key) { return key % 3 == 2; };
  for (const Element element : kElements) {
    for (const double bad : {kNaN, kInfinity}) {
      for (const double masked_score : {-kInfinity, -1e9}) {
        for (const By by : {By::kMask, By::kBias}) {
          if (!sample.takes_next()) continue;
          OwnedProblem owned({1, 2, 1, 40, 150, 8, 9}, element, random);
          Problem& p = owned.problem;
          p.masked_score = masked_score;
          GradientRequest request = testing::random_request(owned, random);
          const auto mask = [&](double open, double shut) {
            return [=](int64_t, int64_t, int64_t, int64_t j) { return closed(j) ? shut : open; };
          };
          if (by == By::kMask) {
            testing::set_block(owned, {3}, mask(0.0, 1.0));
          } else {
            testing::set_bias(owned, {3}, Element::kFloat32, mask(0.0, -kInfinity));
            request.bias = testing::bias_extent(owned, {2, 3});
          }
          const auto spoiled = [&](int64_t, int64_t, int64_t j, int64_t) {
            return closed(j) ? bad : random.normal();
          };
          p.key = owned.tensor(owned.key_extent(), testing::strides_of(owned.key_extent()), element,
                               spoiled);
          p.value = owned.tensor(owned.value_extent(), testing::strides_of(owned.value_extent()),
                                 element, spoiled);
          expect_all_accurate(p, request);
        }
      }
    }
  }
}

TEST(KernelGradientsDropout, OfEveryWeightLeavesOnlyLogsumexpsGradient) {  // C24
  Random random(57);
  for (const Element element : kElements) {
    OwnedProblem owned({2, 2, 1, 40, 150, 8, 9}, element, random);
    const Problem& p = owned.problem;
    owned.problem.dropped = 65536;
    expect_all_accurate(p, testing::random_request(owned, random, true));
    const GradientRequest request = testing::random_request(owned, random, false);
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(p));
      const GradientAnswer answer = testing::run_gradients(kernel, p, request);
      EXPECT_EQ(answer.query.numbers, zeros(2 * 2 * 40 * 8));
      EXPECT_EQ(answer.key.numbers, zeros(2 * 150 * 8));
      EXPECT_EQ(answer.value.numbers, zeros(2 * 150 * 9));
    }
  }
}

}  // namespace
}  // namespace attn::kernel
