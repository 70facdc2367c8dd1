#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace attn::testing {

/// x[i] = sin(a·i + b) in row-major order, computed in float64: the closed-form inputs of
/// tests/golden/documents.json.
inline at::Tensor waves(at::IntArrayRef shape, double a, double b,
                        at::ScalarType dtype = at::kDouble) {
  const int64_t count = c10::multiply_integers(shape);
  return at::arange(count, at::kDouble).mul(a).add(b).sin().reshape(shape).to(dtype);
}

/// Parameter number p, in order, becomes 0.5 · waves(0.37 + 0.11·p, 0.2·p).
template <class Holder>
Holder fill_with_waves(Holder module) {
  const at::NoGradGuard no_grad;
  int p = 0;
  for (auto& parameter : module->parameters()) {
    parameter.copy_(waves(parameter.sizes(), 0.37 + 0.11 * p, 0.2 * p).mul(0.5));
    ++p;
  }
  return module;
}

/// Largest |actual − expected|; NaN and ±∞ must lie in the same places.
inline ::testing::AssertionResult is_near(const at::Tensor& actual, const at::Tensor& expected,
                                          double tolerance) {
  if (actual.sizes() != expected.sizes()) {
    return ::testing::AssertionFailure()
           << "shape " << actual.sizes() << " instead of " << expected.sizes();
  }
  const at::Tensor a = actual.detach().to(at::kDouble);
  const at::Tensor b = expected.detach().to(at::kDouble);
  const at::Tensor finite = b.isfinite();
  const at::Tensor same = a.eq(b).logical_or(a.isnan().logical_and(b.isnan()));
  if (!same.logical_or(finite).all().item<bool>() || !a.isfinite().eq(finite).all().item<bool>()) {
    return ::testing::AssertionFailure() << "NaN or infinity in other places: " << a << " vs " << b;
  }
  const at::Tensor difference = (a - b).abs().masked_select(finite);
  const double largest = difference.numel() == 0 ? 0.0 : difference.max().item<double>();
  if (largest <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "differs by " << largest << ", more than " << tolerance;
}

/// ‖actual − expected‖ / ‖expected‖ (Frobenius).
inline double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  return (actual.to(at::kDouble) - expected).norm().item<double>() / expected.norm().item<double>();
}

/// The message of the c10::Error that the call throws, without its backtrace; "" if it throws none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

/// The distance from 1 to the next number of a floating dtype.
inline double epsilon(at::ScalarType dtype) {
  const int digits = dtype == at::kDouble  ? 52
                     : dtype == at::kFloat ? 23
                     : dtype == at::kHalf  ? 10
                                           : 7;
  return std::ldexp(1.0, -digits);
}

/// Bool tensor of the given shape from 0 and 1.
inline at::Tensor bools(at::IntArrayRef shape, std::vector<int64_t> values) {
  return at::tensor(values, at::kLong).reshape(shape).to(at::kBool);
}

/// Bool [L, S]: true where key ≤ query + offset.
inline at::Tensor lower_triangle(int64_t queries, int64_t keys, int64_t offset = 0) {
  return at::ones({queries, keys}, at::kBool).tril(offset);
}

}  // namespace attn::testing
