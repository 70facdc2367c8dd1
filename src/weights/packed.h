#pragma once

#include <attn/weights.h>

#include <string_view>
#include <vector>

#include "weights/formats/stored_file.h"

namespace attn {

/// Whether each tensor is dense, has data and a dtype that files have.
/// @throws c10::Error naming the tensor
void check_savable(const NamedTensors& tensors);

/// Tensors as writers take them: names, places and bytes.
struct PackedTensors {
  formats::StoredFile file;
  /// The bytes of `file.storages`, in `memory`.
  std::vector<std::string_view> bytes;
  std::vector<at::Tensor> memory;
};

/// Each tensor contiguous, in a storage of its own. They passed `check_savable`.
PackedTensors pack_contiguous(const NamedTensors& tensors);

/// Tensors with their strides; those that share memory look at one storage, which is cut to what
/// they use of it. They passed `check_savable`.
PackedTensors pack_sharing(const NamedTensors& tensors);

}  // namespace attn
