#include "cli/statistics.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/view_as_real.h>
#include <fmt/format.h>

#include <limits>

namespace attn::cli {
namespace {

/// The same elements, each row that is repeated (stride 0) but once, and how often.
std::pair<at::Tensor, int64_t> without_repeats(at::Tensor tensor) {
  int64_t times = 1;
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) {
    if (tensor.stride(axis) != 0 || tensor.size(axis) < 2) continue;
    times *= tensor.size(axis);
    tensor = tensor.narrow(axis, 0, 1);
  }
  return {tensor, times};
}

/// In a dtype that has comparisons.
at::Tensor comparable(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  const bool is_plain = dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
                        dtype == at::kBFloat16 || dtype == at::kLong || dtype == at::kInt ||
                        dtype == at::kShort || dtype == at::kChar || dtype == at::kByte;
  if (is_plain) return tensor;
  if (dtype == at::kUInt64) return tensor.to(at::kDouble);
  return tensor.to(tensor.is_floating_point() ? at::kFloat : at::kLong);
}

std::string text_of(const at::Tensor& number) {
  return number.is_floating_point() ? fmt::format("{:.6g}", number.item<double>())
                                    : fmt::format("{}", number.item<int64_t>());
}

}  // namespace

std::optional<Statistics> statistics_of(const at::Tensor& tensor) {
  Statistics statistics;
  const auto [once, times] = without_repeats(tensor);
  if (tensor.scalar_type() == at::kFloat4_e2m1fn_x2) return std::nullopt;
  if (static_cast<size_t>(once.numel()) > once.storage().nbytes()) return std::nullopt;
  if (once.numel() == 0) return statistics;
  at::Tensor numbers = once.is_complex() ? once : comparable(once);
  if (numbers.is_complex() || numbers.is_floating_point()) {
    const at::Tensor nan = numbers.isnan();
    const auto nans = nan.sum().item<int64_t>();
    statistics.nans = nans * times;
    if (numbers.is_complex() || nans == numbers.numel()) return statistics;
    if (nans > 0) numbers = numbers.masked_select(nan.logical_not());
  }
  const auto [least, greatest] = at::aminmax(numbers);
  statistics.least = text_of(least);
  statistics.greatest = text_of(greatest);
  return statistics;
}

}  // namespace attn::cli
