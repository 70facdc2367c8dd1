#pragma once

#include <ATen/Dispatch.h>

#include <algorithm>
#include <limits>

namespace attn {

/// The masked score in a dtype: a finite one outside of the range becomes the nearest finite value, so
/// that a row of nothing else stays a plain mean.
inline double saturated_masked_score(double score, at::ScalarType dtype) {
  if (score == -std::numeric_limits<double>::infinity()) return score;
  double largest = 0.0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "attention",
                                  [&] { largest = std::numeric_limits<scalar_t>::max(); });
  return std::clamp(score, -largest, largest);
}

}  // namespace attn
