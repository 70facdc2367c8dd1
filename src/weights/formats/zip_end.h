#pragma once

#include <cstdint>
#include <string_view>

namespace attn::formats {

/// What the end of a zip archive says of its directory.
struct ZipEnd {
  std::uint64_t records = 0;
  /// Bytes [begin, end) of the file.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Finds the end record, and that of zip64, of an archive in one part. The directory lies just
/// before it, inside the file, and has the bytes that its number of records needs at least.
/// @throws FormatError; of a truncated archive it says so
ZipEnd find_zip_end(std::string_view file);

/// Bytes of a directory's entry without its name and extra fields.
inline constexpr std::uint64_t kZipEntryBytes = 46;

}  // namespace attn::formats
