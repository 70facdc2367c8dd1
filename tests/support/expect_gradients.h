#pragma once

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>

#include "support/elements.h"
#include "support/expect_accurate.h"
#include "support/gradient_request.h"
#include "support/owned_problem.h"
#include "support/plain_gradients.h"
#include "support/plain_problem.h"
#include "support/run_gradients.h"

namespace attn::testing {

/// ‖gradient − plain‖ / ‖plain‖ (Frobenius) for N(0, 1) inputs and logits of that size.
///
/// float32: a weight is off by 2 to 4e-7 at random, as for the output, and log-sum-exp, which stands in
/// its exponent, by 6e-8 of up to 5; so are the two sums in a logit's gradient. That the output's
/// 1e-6 bounds, and 1.5e-6 this. float64 likewise.
/// bfloat16 has 8 digits: rounding costs 2^-8 (3.9e-3) at most and 1.7e-3 on average. The gradient is
/// rounded, a factor of the product that makes it, and twice what the output brings into the weights'
/// mean gradient: its weights and itself. √4 · 1.7e-3 is 3.4e-3.
/// float16 has 11 digits, and the gradient and the output alone are rounded: √2 · 2.1e-4 is 3e-4.
inline double relative_gradient_bound(kernel::Element element) {
  switch (element) {
    case kernel::Element::kFloat32:
      return 1.5e-6;
    case kernel::Element::kFloat64:
      return 1.5e-14;
    case kernel::Element::kBFloat16:
      return 5e-3;
    case kernel::Element::kFloat16:
      return 5e-4;
  }
  return 0.0;
}

/// The most that rounding to the element takes from a number, relative to it.
inline double rounding_error(kernel::Element element) {
  switch (element) {
    case kernel::Element::kFloat32:
      return 0x1p-24;
    case kernel::Element::kFloat64:
      return 0x1p-53;
    case kernel::Element::kBFloat16:
      return 0x1p-8;
    case kernel::Element::kFloat16:
      return 0x1p-11;
  }
  return 0.0;
}

/// What bounds a gradient's error.
struct GradientBound {
  double rounding;  ///< The last one, relative to the gradient.
  /// What came before, relative to what the gradient's terms would sum to if their signs were random.
  double of_norm;
  /// The largest of many errors is some 5 times as large as they are on average, which for roundings is
  /// 0.43 times the most.
  double of_each;
};

/// For gradients of elements of a type. The sums are allowed half more than the output's; how many roundings
/// there are, is said above. Sums over queries may err to one side where these or the output's gradients
/// are all equal, by half a digit each time; and where outputs are, too, so are all their roundings.
inline GradientBound gradient_bound(const kernel::Problem& p, const GradientRequest& request,
                                    const PlainAnswer& plain, kernel::Element element) {
  double sums = 1.5 * sum_bound(p, plain);
  const double count = p.element == kernel::Element::kBFloat16  ? 3.0
                       : p.element == kernel::Element::kFloat16 ? 1.0
                                                                : 0.0;
  double roundings = std::sqrt(count) * rounding_error(p.element);
  const bool equal_gradients = request.output_gradient.row == 0;
  if (p.key_heads > 0 && (p.query.row == 0 || equal_gradients)) {
    const auto terms = static_cast<double>(p.queries * p.heads / p.key_heads);
    sums += terms * rounding_error(sum_element(p.element));
    if (equal_gradients && (p.query.row == 0 || p.keys == 1)) roundings *= std::sqrt(terms);
  }
  return {rounding_error(element), roundings + sums, 5.0 * (0.43 * roundings + sums)};
}

/// A gradient of elements of a type against the plain one: the norm of the error, and every number on
/// its own. Numbers without terms are zero, exactly.
inline void expect_accurate_gradient(const char* name, kernel::Element element,
                                     const GradientBound& bound, const WrittenGradient& written,
                                     const PlainGradient& plain) {
  ASSERT_EQ(written.numbers.size(), plain.numbers.size()) << name;
  const bool is_float16 = element == kernel::Element::kFloat16;
  const double largest = is_float16 ? 65504.0 : 3e38;
  const double step = is_float16 ? 0x1p-25 : 1e-36;  // half of it, among the smallest numbers
  double difference = 0.0, gradient = 0.0, spread = 0.0, steps = 0.0;
  for (size_t i = 0; i < plain.numbers.size(); ++i) {
    const double expected = plain.numbers[i], actual = written.numbers[i];
    const double size = std::max(std::abs(expected), plain.spread[i]);
    const auto says = [&](const char* problem) {
      std::ostringstream text;
      text << name << " gradient " << actual << " instead of " << expected << " (terms of "
           << plain.spread[i] << ") at " << i << " of " << plain.numbers.size() << ": " << problem;
      return text.str();
    };
    if (plain.spread[i] == 0.0) {
      ASSERT_EQ(actual, 0.0) << says("not zero");
    } else if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(actual)) << says("not NaN");
    } else if (std::abs(expected) < largest) {
      ASSERT_LE(std::abs(actual - expected),
                bound.rounding * std::abs(expected) + bound.of_each * size + step)
          << says("inaccurate");
      difference += (actual - expected) * (actual - expected);
      gradient += expected * expected;
      spread += plain.spread[i] * plain.spread[i];
      steps += step * step;
    }
  }
  // Of a few numbers all may be off the most.
  if (plain.numbers.size() < 100) return;
  EXPECT_LE(std::sqrt(difference), bound.rounding * std::sqrt(gradient) +
                                       bound.of_norm * std::sqrt(std::max(gradient, spread)) +
                                       std::sqrt(steps))
      << name << " gradient: relative error " << std::sqrt(difference / std::max(gradient, spread));
}

/// The gradients that were asked for.
inline void expect_accurate(const kernel::Problem& p, const GradientRequest& request,
                            const GradientAnswer& answer, const PlainGradients& plain,
                            const PlainAnswer& plain_answer) {
  const GradientBound bound = gradient_bound(p, request, plain_answer, p.element);
  if (request.query) {
    expect_accurate_gradient("query", p.element, bound, answer.query, plain.query);
  }
  if (request.key) expect_accurate_gradient("key", p.element, bound, answer.key, plain.key);
  if (request.value) expect_accurate_gradient("value", p.element, bound, answer.value, plain.value);
  if (request.wants_bias()) {
    expect_accurate_gradient("bias", p.bias_element,
                             gradient_bound(p, request, plain_answer, p.bias_element), answer.bias,
                             plain.bias);
  }
}

/// That every kernel computes the gradients.
inline void expect_all_accurate(const kernel::Problem& problem, const GradientRequest& request,
                                const RunOptions& options = {}) {
  SCOPED_TRACE(describe(problem) + "; " + describe(request));
  const PlainAnswer plain_answer = PlainProblem(problem).solve();
  const PlainGradients plain = PlainGradientProblem(problem, request).solve();
  for (const kernel::Kernel& kernel : kernel::supported_kernels()) {
    SCOPED_TRACE(kernel.name);
    expect_accurate(problem, request, run_gradients(kernel, problem, request, options), plain,
                    plain_answer);
  }
}

}  // namespace attn::testing
