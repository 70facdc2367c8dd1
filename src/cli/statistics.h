#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace attn::cli {

/// What the elements of a tensor are like.
struct Statistics {
  /// As text: NaN aside, "–" where there is none to compare.
  std::string least = "–", greatest = "–";
  /// NaN elements; none of integers.
  int64_t nans = 0;
};

/// Nothing for pairs of 4-bit numbers, which LibTorch cannot read, and where a file repeats so few
/// numbers so often that it would never end.
std::optional<Statistics> statistics_of(const at::Tensor& tensor);

}  // namespace attn::cli
