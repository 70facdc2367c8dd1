#pragma once

#include <string_view>

#include "weights/formats/stored_file.h"
#include "weights/formats/zip.h"

namespace attn::formats {

/// Whether the archive is one of `torch.export.save`.
bool is_pt2(const ZipArchive& archive);

/// Parameters and buffers of a .pt2 archive (torch.export), in the order of its weights' list.
/// @throws FormatError
StoredFile read_pt2(std::string_view file, const ZipArchive& archive);

}  // namespace attn::formats
