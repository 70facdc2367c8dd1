#pragma once

#include <string_view>
#include <vector>

#include "weights/formats/zip.h"

namespace attn::formats {

/// Reads the directory of a zip archive, folders included, and checks each local header against it.
/// Names may occur twice.
/// @throws FormatError naming the record and the rule
std::vector<ZipRecord> read_zip_directory(std::string_view file);

}  // namespace attn::formats
