#pragma once

#include <attn/weights.h>

#include "golden/case.h"

namespace attn::golden {

/// What Python computed for one case.
struct Golden {
  Case golden_case;
  /// The file that it came from.
  std::string path;
  /// Results by name ("output", "weights", "grad.…"), "f64.…" of each, "input.…" and "param.…"
  /// where the formula does not make them, "dropout_keep".
  NamedTensors tensors;
  /// Largest difference from "f64.…" that another order of summation explains; see
  /// tests/golden/README.md.
  std::vector<std::pair<std::string, double>> tolerance;
  /// Results of which only the projections are kept.
  std::vector<std::string> projected;
  std::string torch_version;
  /// Seconds of Python's eager forward, 0 where it was not measured.
  double python_seconds = 0.0;
};

/// Initial parameters under a seed, as Python drew them.
struct Init {
  Case golden_case;
  NamedTensors parameters;
  /// What `torch.rand(4)` gave right after.
  at::Tensor next;
};

/// What one file holds: a golden, a bundle of them, or inits; neither, where it is a weight file.
struct GoldenFile {
  std::vector<Golden> goldens;
  std::vector<Init> inits;
};

/// Throws `c10::Error` naming the file where it cannot be read or understood.
GoldenFile read_golden_file(const std::string& path);

}  // namespace attn::golden
