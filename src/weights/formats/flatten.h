#pragma once

#include <functional>

#include "weights/formats/stored_file.h"
#include "weights/formats/torch_pickle.h"

namespace attn::formats {

/// Where a reader keeps the storage of a persistent id.
using PlaceStorage = std::function<PlacedStorage(PickleValue::Index persistent)>;

/// A tensor of a pickle, under a name and in its place, checked.
/// @throws FormatError naming the tensor
StoredTensor placed_tensor(const TorchPickle& torch, PickleValue::Index index,
                           const std::string& name, const PlaceStorage& place);

/// Adds every tensor of a checkpoint to `file` under the joined names of the dicts and the numbers
/// of the lists around it, and everything else to the skipped values: a list of plain values whole.
/// @throws FormatError naming the tensor
void flatten(const TorchPickle& torch, const PlaceStorage& place, StoredFile& file);

}  // namespace attn::formats
