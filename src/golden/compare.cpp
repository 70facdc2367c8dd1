#include "golden/compare.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

#include "golden/formula.h"

namespace attn::golden {
namespace {

at::ScalarType integer_of_size(size_t bytes) {
  switch (bytes) {
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    default:
      return at::kLong;
  }
}

bool has_same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto integer = integer_of_size(a.element_size());
  const at::Tensor equal = a.contiguous().view(integer).eq(b.contiguous().view(integer));
  return equal.logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
}

/// NaN and ±∞ in the same places.
bool has_same_pattern(const at::Tensor& a, const at::Tensor& b) {
  return a.isnan().equal(b.isnan()) && a.isposinf().equal(b.isposinf()) &&
         a.isneginf().equal(b.isneginf());
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor difference = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
  const at::Tensor finite = difference.masked_select(difference.isfinite());
  return finite.numel() == 0 ? 0.0 : finite.max().item<double>();
}

}  // namespace

Comparison compare(const Golden& golden, const std::string& name, const at::Tensor& result) {
  Comparison comparison;
  comparison.tensor = name;
  comparison.tolerance = find_or(golden.tolerance, name, 0.0);
  const at::Tensor python = find_or(golden.tensors, name, at::Tensor());
  const at::Tensor exact = find_or(golden.tensors, "f64." + name, at::Tensor());
  TORCH_CHECK(python.defined(), "[golden] ", golden.path, ": expected a tensor \"", name, "\"");

  const auto& projected = golden.projected;
  const bool is_projected = std::find(projected.begin(), projected.end(), name) != projected.end();
  const at::Tensor ours = is_projected ? projections(result) : result;
  if (ours.sizes() != python.sizes() || ours.scalar_type() != python.scalar_type()) {
    comparison.from_python = comparison.from_float64 = std::numeric_limits<double>::infinity();
    return comparison;
  }
  const at::Tensor& pattern = exact.defined() ? exact : python;
  comparison.same_pattern = has_same_pattern(ours.to(at::kDouble), pattern.to(at::kDouble));
  comparison.same_bits = has_same_bits(ours, python);
  comparison.from_python = largest_difference(ours, python);
  if (exact.defined()) comparison.from_float64 = largest_difference(ours, exact);
  return comparison;
}

}  // namespace attn::golden
