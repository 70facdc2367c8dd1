#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weights/formats/stored_file.h"

namespace attn::formats {

/// A record of a zip archive.
struct ZipRecord {
  std::string name;
  /// Its bytes in the file: [begin, begin + stored_size), before the central directory.
  std::uint64_t begin = 0;
  std::uint64_t stored_size = 0;
  std::uint64_t size = 0;
  bool deflated = false;
  std::uint32_t crc32 = 0;
};

/// The directory of a zip archive (PKWARE APPNOTE 6.3.10, with zip64) in memory, which must outlive
/// it. Stored and deflated records are read; encryption, other methods, archives in several parts,
/// names twice, records that overlap or reach outside the file, and a local header that contradicts
/// the directory are refused.
class ZipArchive {
 public:
  /// @throws FormatError naming the record and the rule
  explicit ZipArchive(std::string_view file);

  /// In the order of the directory; folders (names that end in '/') are left out.
  const std::vector<ZipRecord>& records() const { return records_; }
  /// The record of this whole name, or nullptr.
  const ZipRecord* find(std::string_view name) const;
  /// False where every record carries the checksum 0: the archive was saved without.
  bool has_checksums() const { return has_checksums_; }

  /// The bytes of a record, inflated and with its checksum checked.
  /// @throws FormatError naming the record, where it has more than `most` bytes or is damaged
  std::string read(const ZipRecord& record, std::uint64_t most) const;
  /// The record as a storage, whose bytes are not looked at.
  Storage storage(const ZipRecord& record) const;

 private:
  std::string_view file_;
  std::vector<ZipRecord> records_;
  /// Indices into `records_`, in the order of the names.
  std::vector<std::size_t> by_name_;
  bool has_checksums_ = false;
};

}  // namespace attn::formats
