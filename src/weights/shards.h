#pragma once

#include <string>

#include "weights/opened_file.h"

namespace attn {

/// Opens the shards that the index in `index` names, which lie beside it. Every tensor of the index
/// must be in its shard; tensors that the index does not name are skipped.
/// @throws WeightsError
OpenedFile open_shards(const std::string& path, const MappedFile& index, bool opaque);

}  // namespace attn
