// Rows without an open key, and what lies behind masks.

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
#include "support/repetitions.h"
#include "support/run_kernel.h"

namespace attn::kernel {
namespace {

using testing::OwnedProblem;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLowest = std::numeric_limits<float>::lowest();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Blocking {
  const char* name;
  bool is_bias;
  /// Blocks the keys for which closed(query, key) is true.
  void (*add)(OwnedProblem&, const std::function<bool(int64_t, int64_t)>& closed);
};

const Blocking kBlockings[] = {
    {"attend", false,
     [](OwnedProblem& p, const auto& closed) {
       testing::set_attend(p, {0, 1, 2, 3}, [&](int64_t, int64_t, int64_t i, int64_t j) {
         return closed(i, j) ? 0.0 : 1.0;
       });
     }},
    {"block", false,
     [](OwnedProblem& p, const auto& closed) {
       testing::set_block(p, {2, 3}, [&](int64_t, int64_t, int64_t i, int64_t j) {
         return closed(i, j) ? 1.0 : 0.0;
       });
     }},
    {"bias", true,
     [](OwnedProblem& p, const auto& closed) {
       testing::set_bias(p, {2, 3}, Element::kFloat32, [&](int64_t, int64_t, int64_t i, int64_t j) {
         return closed(i, j) ? -kInfinity : 0.0;
       });
     }},
};

/// Calls check(problem, blocking) for every element, key count and way to block what is `closed`.
void for_every_blocking(const std::function<bool(int64_t, int64_t)>& closed,
                        const std::function<void(OwnedProblem&, const Blocking&)>& check) {
  Random random(6);
  testing::Sample sample;
  for (const Element element : testing::kElements) {
    for (const int64_t keys : {1, 31, 128, 300}) {
      for (const Blocking& blocking : kBlockings) {
        if (!sample.takes_next()) continue;
        SCOPED_TRACE(blocking.name);
        OwnedProblem owned({2, 2, 1, 40, keys, 8, 9}, element, random);
        blocking.add(owned, closed);
        check(owned, blocking);
      }
    }
  }
}

bool in_first_rows(int64_t query, int64_t) { return query < 3; }

/// In the first 3 rows of each head, every weight is `weight`.
void expect_first_rows(const Problem& p, const testing::Answer& answer, double logsumexp,
                       double weight) {
  // log S is below 6; 2^-22 is its last digit in float32, and as much comes from the sum.
  const double bound = std::max(1.0, std::abs(logsumexp)) * 0x1p-22;
  for (int64_t row = 0; row < p.batches * p.heads * p.queries; ++row) {
    if (row % p.queries >= 3) continue;
    EXPECT_TRUE(testing::agree(answer.logsumexp[row], logsumexp, bound)) << answer.logsumexp[row];
    for (int64_t j = 0; j < p.keys; ++j) {
      const double actual = answer.weights[row * p.keys + j];
      ASSERT_TRUE(testing::agree(actual, weight, weight * 0x1p-8)) << actual;
    }
  }
}

TEST(KernelMaskedRows, AreZeroOrNaNAsAsked) {
  for (const bool nan : {false, true}) {
    for_every_blocking(in_first_rows, [nan](OwnedProblem& owned, const Blocking&) {
      owned.problem.nan_when_fully_masked = nan;
      const double nothing = nan ? kNaN : 0.0;
      testing::expect_all_accurate(owned.problem);
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        const auto answer =
            testing::run(kernel, owned.problem, {.logsumexp = true, .weights = true});
        expect_first_rows(owned.problem, answer, -kInfinity, nothing);
      }
    });
  }
}

TEST(KernelMaskedRows, AreThePlainMeanOfAllValuesWithAFiniteMaskedScore) {
  // The documents' −1e9 and −1e20/√E, the lowest float32 as other code has it, and one that counts.
  for (const double masked_score : {-1e9, -1e20 / 16.0, kLowest, -2.0}) {
    for_every_blocking(in_first_rows, [=](OwnedProblem& owned, const Blocking& blocking) {
      if (blocking.is_bias) return;  // −∞, whatever the masked score
      owned.problem.masked_score = masked_score;
      testing::expect_all_accurate(owned.problem);
      const auto keys = static_cast<double>(owned.problem.keys);
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        const auto answer =
            testing::run(kernel, owned.problem, {.logsumexp = true, .weights = true});
        expect_first_rows(owned.problem, answer, masked_score + std::log(keys), 1.0 / keys);
      }
    });
  }
}

TEST(KernelMaskedRows, OfCausalityFollowTheMaskedScore) {
  Random random(7);
  for (const Element element : testing::kElements) {
    for (const double masked_score : {-kInfinity, -1e9, -1e20 / 16.0, kLowest}) {
      for (const int64_t offset : {-3, -40, -1000}) {  // some rows, all, and more than all
        OwnedProblem owned({1, 2, 2, 40, 300, 8, 9}, element, random);
        testing::set_causal(owned, offset);
        owned.problem.masked_score = masked_score;
        testing::expect_all_accurate(owned.problem);
      }
    }
  }
}

TEST(KernelMaskedRows, RuledByBothBiasAndMaskTakeTheMaskedScore) {
  // Keys 0 to 9 are masked, and the bias of all is −∞: of the final logits, only the masked score counts.
  Random random(8);
  for (const Element element : testing::kElements) {
    OwnedProblem owned({1, 1, 1, 20, 150, 8, 9}, element, random);
    testing::set_bias(owned, {2, 3}, Element::kFloat32, [](auto...) { return -kInfinity; });
    testing::set_block(owned, {3},
                       [](int64_t, int64_t, int64_t, int64_t j) { return j < 10 ? 1.0 : 0.0; });
    owned.problem.masked_score = -1e9;
    testing::expect_all_accurate(owned.problem);
  }
}

// C09. NaN and ∞ in keys and values that are closed to a row do not reach it; open ones do.

bool from_key_5(int64_t, int64_t key) { return key >= 5 && key % 3 == 2; }

/// The view with `bad` in some of its rows, without gaps.
View spoiled(OwnedProblem& owned, const View& view, const testing::Extent& extent, double bad,
             const std::function<bool(int64_t)>& is_bad) {
  const Element element = owned.problem.element;
  return owned.tensor(extent, testing::strides_of(extent), element,
                      [&](int64_t b, int64_t h, int64_t r, int64_t c) {
                        if (is_bad(r)) return bad;
                        return testing::read(
                            element, view.data,
                            b * view.batch + h * view.head + r * view.row + c * view.column);
                      });
}

void expect_nan_everywhere(const Problem& p) {
  SCOPED_TRACE(testing::describe(p));
  for (const Kernel& kernel : supported_kernels()) {
    SCOPED_TRACE(kernel.name);
    for (const double x : testing::run(kernel, p).output) ASSERT_TRUE(std::isnan(x)) << x;
  }
}

TEST(KernelMasked, NaNAndInfinityDoNotReachRowsThatMayNotSeeThem) {
  for (const double bad : {kNaN, kInfinity}) {
    for (const double masked_score : {-kInfinity, -1e9}) {
      for_every_blocking(from_key_5, [=](OwnedProblem& owned, const Blocking&) {
        owned.problem.masked_score = masked_score;
        std::vector<testing::Answer> clean;
        for (const Kernel& kernel : supported_kernels()) {
          clean.push_back(
              testing::run(kernel, owned.problem, {.logsumexp = true, .weights = true}));
        }
        const auto closed = [](int64_t key) { return from_key_5(0, key); };
        Problem& p = owned.problem;
        p.key = spoiled(owned, p.key, owned.key_extent(), bad, closed);
        p.value = spoiled(owned, p.value, owned.value_extent(), bad, closed);
        for (size_t k = 0; k < clean.size(); ++k) {
          SCOPED_TRACE(supported_kernels()[k].name);
          const auto answer = testing::run(supported_kernels()[k], owned.problem,
                                           {.logsumexp = true, .weights = true});
          for (const double x : answer.output) ASSERT_TRUE(std::isfinite(x));
          EXPECT_EQ(answer.weights, clean[k].weights);
          EXPECT_EQ(answer.logsumexp, clean[k].logsumexp);
        }
        testing::expect_all_accurate(owned.problem);
      });
    }
  }
}

TEST(KernelMasked, NaNBehindCausalityDoesNotReachEarlierRows) {
  Random random(9);
  for (const Element element : testing::kElements) {
    for (const double masked_score : {-kInfinity, -1e9}) {
      OwnedProblem owned({1, 2, 1, 150, 150, 8, 9}, element, random);
      testing::set_causal(owned, 0);
      owned.problem.masked_score = masked_score;
      const auto nan_from_100 = [&](int64_t, int64_t, int64_t j, int64_t) {
        return j >= 100 ? kNaN : random.normal();
      };
      owned.problem.key = owned.tensor(owned.key_extent(), testing::strides_of(owned.key_extent()),
                                       element, nan_from_100);
      owned.problem.value = owned.tensor(
          owned.value_extent(), testing::strides_of(owned.value_extent()), element, nan_from_100);
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        const auto answer = testing::run(kernel, owned.problem);
        for (size_t i = 0; i < answer.output.size(); ++i) {
          const bool early = i / 9 % 150 < 100;
          ASSERT_EQ(std::isfinite(answer.output[i]), early) << testing::describe(owned.problem);
        }
      }
      testing::expect_all_accurate(owned.problem);
    }
  }
}

TEST(KernelMasked, NaNInAnOpenKeyReachesTheRow) {
  const auto third = [](int64_t key) { return key == 3; };
  for_every_blocking(from_key_5, [&](OwnedProblem& owned, const Blocking&) {
    if (owned.problem.keys < 5) return;
    owned.problem.key = spoiled(owned, owned.problem.key, owned.key_extent(), kNaN, third);
    for (const Squash squash : {Squash::kNone, Squash::kClip, Squash::kSoftcap}) {
      owned.problem.squash = squash;
      owned.problem.squash_limit = 3.0;
      expect_nan_everywhere(owned.problem);
    }
  });
}

TEST(KernelMasked, NaNInAnOpenValueReachesTheRow) {
  const auto third = [](int64_t key) { return key == 3; };
  for_every_blocking(from_key_5, [&](OwnedProblem& owned, const Blocking&) {
    if (owned.problem.keys < 5) return;
    owned.problem.value = spoiled(owned, owned.problem.value, owned.value_extent(), kNaN, third);
    expect_nan_everywhere(owned.problem);
  });
}

TEST(KernelMasked, NaNInAQueryReachesItsRowAlone) {
  const auto third = [](int64_t query) { return query == 3; };
  for_every_blocking(from_key_5, [&](OwnedProblem& owned, const Blocking&) {
    owned.problem.query = spoiled(owned, owned.problem.query, owned.query_extent(), kNaN, third);
    testing::expect_all_accurate(owned.problem);
  });
}

TEST(KernelMasked, NaNInABiasReachesTheRow) {
  Random random(10);
  for (const Element element : testing::kElements) {
    for (const Element bias : testing::kElements) {
      OwnedProblem owned({1, 2, 1, 20, 150, 8, 9}, element, random);
      testing::set_bias(owned, {3}, bias,
                        [](int64_t, int64_t, int64_t, int64_t j) { return j == 3 ? kNaN : 0.0; });
      expect_nan_everywhere(owned.problem);
    }
  }
}

TEST(KernelMasked, NaNInAFullyMaskedRowOfAFiniteScoreIsPartOfItsMean) {
  Random random(23);
  for (const Element element : testing::kElements) {
    OwnedProblem owned({1, 1, 1, 20, 150, 8, 9}, element, random);
    testing::set_causal(owned, -1000);
    owned.problem.masked_score = -1e9;
    owned.problem.value = spoiled(owned, owned.problem.value, owned.value_extent(), kNaN,
                                  [](int64_t key) { return key == 3; });
    expect_nan_everywhere(owned.problem);
  }
}

}  // namespace
}  // namespace attn::kernel
