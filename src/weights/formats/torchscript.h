#pragma once

#include <string_view>

#include "weights/formats/stored_file.h"
#include "weights/formats/zip.h"

namespace attn::formats {

/// Whether the archive is one of `torch.jit.save`.
bool is_torchscript(const ZipArchive& archive);

/// Parameters and buffers of a TorchScript archive in the order of Python's `state_dict()`: module
/// by module, its parameters before its buffers. No code of the archive is compiled or run: the
/// class declarations are read for the names of parameters and buffers alone.
/// @throws FormatError; also for a frozen archive, whose weights are constants without names
StoredFile read_torchscript(std::string_view file, const ZipArchive& archive);

}  // namespace attn::formats
