#include "bench/measure.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

namespace attn::bench {
namespace {

TEST(BestTimesTest, CallsTakeTurns) {
  std::string order;
  best_times({[&] { order += 'a'; }, [&] { order += 'b'; }}, 0.0);
  std::string expected = "ab";  // to warm up
  for (int round = 0; round < kMinimumRounds; ++round) expected += "aabb";
  EXPECT_EQ(order, expected);
}

TEST(BestTimesTest, GoOnUntilTheTimeIsUp) {
  int calls = 0;
  const auto start = std::chrono::steady_clock::now();
  best_times({[&] { ++calls; }}, 0.02);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_GT(calls, kMinimumRounds * kCallsATurn + 1);
}

// A sleep may end late, never early: neither the first, nor the last, nor the mean of these times is
// below four milliseconds.
TEST(BestTimesTest, AreThoseOfTheFastestCall) {
  constexpr std::array kMilliseconds = {9, 4, 5, 3, 1, 2, 5, 6, 7};  // the first one warms up
  static_assert(kMilliseconds.size() == kMinimumRounds * kCallsATurn + 1);
  size_t call = 0;
  const auto sleep = [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(kMilliseconds[call++]));
  };
  const std::vector<double> best = best_times({sleep}, 0.0);
  ASSERT_EQ(best.size(), 1);
  EXPECT_GE(best[0], 1e-3);
  EXPECT_LT(best[0], 4e-3);
}

TEST(FractionOfPeakTest, CountsWhatTheCausalMaskLeaves) {
  const FmaPeak peak = {.float32 = 100.0};
  const Row row = {.L = 2, .S = 2, .D = 1000000000, .Dv = 1000000000, .mask = MaskKind::kCausal};
  // 4·8·2·2 = 128 GFLOP, of which a row of one key and one of two leave 3/4: 96 in two seconds.
  EXPECT_DOUBLE_EQ(*fraction_of_peak(row, 2.0, peak, 1), 0.48);
  EXPECT_DOUBLE_EQ(*fraction_of_peak(row, 2.0, peak, 2), 0.24);
}

TEST(FractionOfPeakTest, TakesThePeakOfTheDtype) {
  const FmaPeak peak = {.float32 = 100.0, .bfloat16 = 200.0};
  const auto fraction = [&](at::ScalarType dtype, const FmaPeak& of) {
    const Row row = {.dtype = dtype, .L = 2, .S = 2, .D = 1000000000, .Dv = 1000000000};
    return *fraction_of_peak(row, 1.28, of, 1);  // 100 GFLOP/s
  };
  EXPECT_DOUBLE_EQ(fraction(at::kFloat, peak), 1.0);
  EXPECT_DOUBLE_EQ(fraction(at::kHalf, peak), 1.0);
  EXPECT_DOUBLE_EQ(fraction(at::kDouble, peak), 2.0);
  EXPECT_DOUBLE_EQ(fraction(at::kBFloat16, peak), 0.5);
  EXPECT_DOUBLE_EQ(fraction(at::kBFloat16, {.float32 = 100.0}), 1.0);
}

TEST(FractionOfPeakTest, IsNothingForDecoding) {
  EXPECT_FALSE(fraction_of_peak({.S = 64}, 1.0, {.float32 = 100.0}, 1));
}

}  // namespace
}  // namespace attn::bench
