#include <gtest/gtest.h>
#include <kernel/attention.h>
#include <kernel/half.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/elements.h"
#include "support/owned_problem.h"
#include "support/run_kernel.h"

namespace attn::kernel {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool is_half_nan(uint16_t half) { return (half & 0x7FFF) > 0x7C00; }

TEST(Half, EveryHalfIsTheNumberThatItStandsFor) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float actual = half_to_float(static_cast<uint16_t>(half));
    const double expected = testing::from_float16(static_cast<uint16_t>(half));
    ASSERT_EQ(std::isnan(actual), std::isnan(expected)) << half;
    if (!std::isnan(expected)) {
      ASSERT_EQ(actual, expected) << half;
      ASSERT_EQ(std::signbit(actual), std::signbit(expected)) << half;
    }
  }
}

TEST(Half, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const uint16_t back = float_to_half(half_to_float(static_cast<uint16_t>(half)));
    if (is_half_nan(static_cast<uint16_t>(half))) {
      ASSERT_TRUE(is_half_nan(back)) << half;
    } else {
      ASSERT_EQ(back, half);
    }
  }
}

TEST(Half, RoundsToNearestAndTiesToEvenBetweenAnyTwoNeighbours) {
  for (uint32_t half = 0; half < 0x7BFF; ++half) {
    const uint32_t even = half + (half & 1);
    const float lower = half_to_float(static_cast<uint16_t>(half));
    const float upper = half_to_float(static_cast<uint16_t>(half + 1));
    const float middle = (lower + upper) / 2.0f;  // exact: 12 digits of float's 24
    ASSERT_EQ(float_to_half(middle), even);
    ASSERT_EQ(float_to_half(-middle), even | 0x8000);
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(float_to_half(std::nextafter(middle, kInfinity)), half + 1);
  }
}

TEST(Half, RoundsToTheNearestBFloat16AndTiesToEven) {
  for (uint32_t number = 0; number < 0x7F7F; ++number) {
    const float lower = std::bit_cast<float>(number << 16);
    const float middle = std::bit_cast<float>(number << 16 | 0x8000);
    ASSERT_EQ(float_to_bfloat16(lower), number);
    ASSERT_EQ(float_to_bfloat16(middle), number + (number & 1));
    ASSERT_EQ(float_to_bfloat16(-middle), (number + (number & 1)) | 0x8000);
    ASSERT_EQ(float_to_bfloat16(std::nextafter(middle, kInfinity)), number + 1);
  }
  EXPECT_EQ(float_to_bfloat16(kInfinity), 0x7F80);
  EXPECT_GT(float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()) & 0x7FFF, 0x7F80);
}

TEST(Half, RoundsToInfinityFromTheMiddleBeyondTheLargestHalf) {
  EXPECT_EQ(float_to_half(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(-65520.0f), 0xFC00);
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(float_to_half(kInfinity), 0x7C00);
  EXPECT_EQ(float_to_half(-kInfinity), 0xFC00);
}

TEST(Half, KeepsNaNAndRoundsTheSmallestFloatsToSignedZeros) {
  for (const uint32_t bits : {0x7FC00000u, 0x7F800001u, 0xFFC00000u, 0x7FFFFFFFu}) {
    EXPECT_TRUE(is_half_nan(float_to_half(std::bit_cast<float>(bits))));
  }
  EXPECT_EQ(float_to_half(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(float_to_half(-0.0f), 0x8000);
}

double from_bits(Element element, uint16_t bits) {
  return element == Element::kFloat16 ? testing::from_float16(bits) : testing::from_bfloat16(bits);
}

uint16_t to_bits(Element element, double x) {
  return element == Element::kFloat16 ? testing::to_float16(x) : testing::to_bfloat16(x);
}

/// Every finite number of an element of 16 bits as a value, [1, 1, 1, Dv = 512] in 128 batches.
testing::OwnedProblem all_values(Element element, int64_t keys) {
  const auto number = [element](int64_t b, int64_t, int64_t j, int64_t x) {
    // Keys have neighbours.
    const double value = from_bits(element, static_cast<uint16_t>(b * 512 + x + j));
    // Products of subnormal bfloat16 are 0 where an instruction for them rules so, and sums of the
    // largest are too large for float.
    const bool plain =
        element == Element::kFloat16 || (std::abs(value) >= 0x1p-126 && std::abs(value) < 1e38);
    return std::isfinite(value) && plain ? value : 0.0;
  };
  const auto zero = [](auto...) { return 0.0; };
  return {{128, 1, 1, 1, keys, 1, 512}, element, zero, zero, number};
}

class KernelElements : public ::testing::TestWithParam<Element> {};
INSTANTIATE_TEST_SUITE_P(OfHalfPrecision, KernelElements,
                         ::testing::Values(Element::kBFloat16, Element::kFloat16),
                         [](const auto& test) { return testing::name_of(test.param); });

TEST_P(KernelElements, PassThroughASingleKeyUnchanged) {
  const testing::OwnedProblem owned = all_values(GetParam(), 1);
  const auto* values = static_cast<const uint16_t*>(owned.problem.value.data);
  for (const Kernel& kernel : supported_kernels()) {
    SCOPED_TRACE(kernel.name);
    const testing::Answer answer = testing::run(kernel, owned.problem);
    for (int64_t i = 0; i < 0x10000; ++i) {
      ASSERT_EQ(answer.output[i], from_bits(GetParam(), values[i])) << "value " << i;
    }
  }
}

TEST_P(KernelElements, AreRoundedToNearestAndTiesToEven) {
  // The mean of two neighbours, each of weight 1 before the division, is exact in float and a tie.
  const testing::OwnedProblem owned = all_values(GetParam(), 2);
  const auto* values = static_cast<const uint16_t*>(owned.problem.value.data);
  for (const Kernel& kernel : supported_kernels()) {
    SCOPED_TRACE(kernel.name);
    const testing::Answer answer = testing::run(kernel, owned.problem);
    for (int64_t i = 0; i < 0x10000; ++i) {
      const int64_t first = i / 512 * 1024 + i % 512;
      const double mean =
          (from_bits(GetParam(), values[first]) + from_bits(GetParam(), values[first + 512])) / 2.0;
      ASSERT_EQ(answer.output[i], from_bits(GetParam(), to_bits(GetParam(), mean)))
          << "mean " << mean;
    }
  }
}

}  // namespace
}  // namespace attn::kernel
