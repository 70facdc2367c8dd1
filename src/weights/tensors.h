#pragma once

#include <attn/weights.h>

#include <memory>

#include "weights/formats/stored_file.h"
#include "weights/mapped_file.h"

namespace attn {

/// The tensors of `file`, on the CPU. They look at the mapping, which they keep alive, except where
/// their bytes are deflated, in the other byte order or misaligned: those have memory of their own.
/// Tensors of one storage share it. Checksums are compared, each storage's once.
/// @throws formats::FormatError naming the tensor
NamedTensors make_tensors(const formats::StoredFile& file,
                          const std::shared_ptr<const MappedFile>& mapping);

}  // namespace attn
