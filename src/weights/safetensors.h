#pragma once

#include <attn/export.h>
#include <attn/weights.h>

#include <string>
#include <utility>
#include <vector>

namespace attn {

struct SafetensorsFile {
  /// `__metadata__`, in the order of the header.
  std::vector<std::pair<std::string, std::string>> metadata;
  NamedTensors tensors;
};

/// Reads a safetensors file; see `read_weights`, which has no metadata to give.
/// Internal: exported for what is linked against the library and belongs to this project.
/// @throws WeightsError
ATTN_API SafetensorsFile read_safetensors(const std::string& path);

}  // namespace attn
