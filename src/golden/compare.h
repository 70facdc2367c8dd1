#pragma once

#include "golden/file.h"

namespace attn::golden {

/// How far one tensor lies from what Python computed.
struct Comparison {
  std::string tensor;
  /// Same bits, any NaN equal to any other.
  bool same_bits = false;
  /// NaN and ±∞ in the same places, and the same shape and dtype.
  bool same_pattern = false;
  /// Largest absolute difference from eager Python, over the finite elements.
  double from_python = 0.0;
  /// The same from the float64 result; 0 where the file holds none.
  double from_float64 = 0.0;
  /// The bound on `from_float64` that the file states; 0 where it states none.
  double tolerance = 0.0;

  /// Within the stated tolerance of the float64 result.
  bool agrees() const { return same_pattern && from_float64 <= tolerance; }
};

/// The result against the golden tensor of its name.
Comparison compare(const Golden& golden, const std::string& name, const at::Tensor& result);

}  // namespace attn::golden
