#pragma once

#include <attn/weights.h>

#include <string_view>
#include <vector>

#include "weights/formats/stored_file.h"

namespace attn {

/// Tensors as writers take them: names, places and bytes.
struct PackedTensors {
  formats::StoredFile file;
  /// The bytes of `file.storages`, in `memory`.
  std::vector<std::string_view> bytes;
  std::vector<at::Tensor> memory;
};

/// Each tensor contiguous, in a storage of its own.
/// @throws c10::Error naming the tensor, for one that is not dense or has a dtype no file has
PackedTensors pack_contiguous(const NamedTensors& tensors);

/// Tensors with their strides; those that share memory look at one storage, which is cut to what
/// they use of it.
/// @throws c10::Error as `pack_contiguous`
PackedTensors pack_sharing(const NamedTensors& tensors);

}  // namespace attn
