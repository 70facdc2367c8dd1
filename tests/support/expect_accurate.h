#pragma once

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "support/owned_problem.h"
#include "support/plain_problem.h"
#include "support/run_kernel.h"

namespace attn::testing {

/// ‖output − plain‖ / ‖plain‖ (Frobenius) for N(0, 1) inputs and logits of that size.
///
/// float32: a logit of size 1 is a sum of products and off by some 2^-24 (6e-8), exp by 1.7e-7 and
/// its rounding; a weight by 2 to 4e-7, at random, as are its sum and the output. Thrice that is
/// 1e-6. float64 likewise: 2^-53 is 1.1e-16, a weight is off by less than 1e-15; ten times that.
/// bfloat16 has 8 digits: rounding the output costs at most 2^-8 (3.9e-3), 1.7e-3 on average, and
/// rounding the weights for the second product as much again; together 2.4e-3 over many outputs.
/// float16 has 11 digits: the output alone is rounded, by at most 2^-11 (4.9e-4).
inline double relative_bound(kernel::Element element) {
  switch (element) {
    case kernel::Element::kFloat32:
      return 1e-6;
    case kernel::Element::kFloat64:
      return 1e-14;
    case kernel::Element::kBFloat16:
      return 4e-3;
    case kernel::Element::kFloat16:
      return 5e-4;
  }
  return 0.0;
}

/// The part of the bound that the sums account for, in their type. It grows with logits beyond what
/// N(0, 1) gives, and by a clip, which multiplies a tanh that is off by as much as a logit. Masked keys
/// that count have equal weights, rows of stride 0 are equal; sums of up to 128 equal terms may err to
/// one side, by 2^-24 each time.
inline double sum_bound(const kernel::Problem& p, const PlainAnswer& plain) {
  const bool is_double = p.element == kernel::Element::kFloat64;
  double size = std::max(1.0, plain.largest_dot / 5.0);
  if (p.squash == kernel::Squash::kClip) size *= std::max(1.0, p.squash_limit);
  const bool equal_terms = p.masked_score > -100.0 || p.key.row == 0 || p.value.row == 0;
  const double one_sided = equal_terms ? 128.0 * (is_double ? 0x1p-53 : 0x1p-24) : 0.0;
  return size * (is_double ? 1e-14 : 1e-6) + one_sided;
}

/// The most that rounding to the element takes from a number, relative to it.
inline double rounding_bound(const kernel::Problem& p) {
  return p.element == kernel::Element::kBFloat16  ? 0x1p-8
         : p.element == kernel::Element::kFloat16 ? 0x1p-11
                                                  : 0.0;
}

/// NaN and ±∞ agree with themselves alone.
inline bool agree(double actual, double expected, double bound) {
  return actual == expected || (std::isnan(actual) && std::isnan(expected)) ||
         (std::isfinite(expected) && std::abs(actual - expected) <= bound);
}

/// Output, and logsumexp and weights where the answer has them.
inline void expect_accurate(const kernel::Problem& p, const Answer& answer,
                            const PlainAnswer& plain) {
  const Distance d = distance(answer, plain);
  EXPECT_TRUE(d.same_places) << "NaN or infinity in other places";
  // Of a few outputs all may be rounded the most, and so may bfloat16's few weights, or the few that
  // dropout keeps.
  const bool is_few = answer.output.size() < 100 || p.dropped > 0;
  const double few = p.element == kernel::Element::kBFloat16 && is_few ? 2.0 : 1.0;
  EXPECT_LE(d.relative, few * rounding_bound(p) + sum_bound(p, plain));

  // A weight e^(logit − logsumexp) is off by what these are off by, the largest of many by some 4
  // times as much as they are on average. Below e^-87 it is 0; subnormal float16 have steps of 2^-24.
  const double worst = 4.0 * sum_bound(p, plain);
  const double step = p.element == kernel::Element::kFloat16 ? 0x1p-25 : 1e-37;
  for (size_t i = 0; i < answer.logsumexp.size(); ++i) {
    const double expected = plain.logsumexp[i];
    ASSERT_TRUE(agree(answer.logsumexp[i], expected, worst * std::max(1.0, std::abs(expected))))
        << "logsumexp " << answer.logsumexp[i] << " instead of " << expected << " in row " << i;
  }
  for (size_t i = 0; i < answer.weights.size(); ++i) {
    const double expected = plain.weights[i];
    ASSERT_TRUE(agree(answer.weights[i], expected, (worst + rounding_bound(p)) * expected + step))
        << "weight " << answer.weights[i] << " instead of " << expected << " at " << i;
  }
}

/// That every kernel computes the problem, with logsumexp and weights.
inline void expect_all_accurate(const kernel::Problem& problem) {
  SCOPED_TRACE(describe(problem));
  const PlainAnswer plain = PlainProblem(problem).solve();
  for (const kernel::Kernel& kernel : kernel::supported_kernels()) {
    SCOPED_TRACE(kernel.name);
    expect_accurate(problem, run(kernel, problem, {.logsumexp = true, .weights = true}), plain);
  }
}

}  // namespace attn::testing
