#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "golden/run.h"

/// Weights that the caller names for a golden file, and golden files made by hand.
namespace attn::golden {

/// What `attn check` is told about weights.
struct GivenWeights {
  std::string path, prefix, layout;
  /// Class, e.g. "CausalMultiheadAttention"; "" leaves it to the golden file.
  std::string module;
  /// 0 leaves them to the golden file, or to the weights.
  int64_t heads = 0;
  /// Instead of the bounds that the golden file states.
  std::optional<double> tolerance;
};

/// Holds a golden file's declaration to what the caller said, and takes the caller's tolerance.
/// @throws c10::Error where module or heads are others
void adopt(Golden& golden, const GivenWeights& weights);

/// How the weights are read for a case.
WeightSource source_of(const GivenWeights& weights, const Case& declared);

/// A golden file without a declaration: forward's arguments and "output" under their names, run with
/// the sizes that the weights have. Its bound is derived here; see tests/golden/README.md.
/// @throws c10::Error where module or heads are not known, or a tensor is not the module's
Golden read_golden_by_hand(const std::string& path, const GivenWeights& weights);

}  // namespace attn::golden
