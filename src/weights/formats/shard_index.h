#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn::formats {

/// Hugging Face's index of a checkpoint in several files.
struct ShardIndex {
  /// The shards' file names, each once, in the order of their first mention.
  std::vector<std::string> files;
  /// Tensor names and the shard of each, an index into `files`, in the order of the index.
  std::vector<std::pair<std::string, std::size_t>> tensors;
};

/// Reads the JSON of a `*.index.json`: an object whose "weight_map" gives names their files. Files
/// must be plain names, so that they lie beside the index.
/// @throws FormatError
ShardIndex parse_shard_index(std::string_view json);

}  // namespace attn::formats
