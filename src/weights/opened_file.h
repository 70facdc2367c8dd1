#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weights/formats/stored_file.h"
#include "weights/mapped_file.h"

namespace attn {

/// One file whose directory was read and whose tensors were not made yet.
struct OpenedPart {
  formats::StoredFile stored;
  std::shared_ptr<const MappedFile> mapping;
  std::string path;
};

/// A weight file: one part, or one for each shard.
struct OpenedFile {
  /// As in `WeightFile`.
  std::string format;
  std::vector<OpenedPart> parts;
};

/// Reads the directory of a weight file, whose kind its bytes tell.
/// @throws WeightsError
OpenedFile open_weight_file(const std::string& path, bool opaque);

/// The same for a file that stands alone: an index of shards is refused.
/// @throws WeightsError
OpenedFile open_single_file(const std::string& path, bool opaque);

}  // namespace attn
