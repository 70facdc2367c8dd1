#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/formats/little_endian.h"

/// Zip archives byte by byte, honest unless a test says otherwise.
namespace attn::testing {

/// What the directory or the local header says of a record.
struct ZipFields {
  std::string name = {};
  std::uint64_t flags = 0, method = 0, crc32 = 0, stored_size = 0, size = 0;
  std::string extra = {};
};

/// A record: the bytes as they lie in the file, and what is said of them.
struct ZipPart {
  std::string stored;
  ZipFields local, directory;
  /// Where the directory says that the local header is, if not where it is.
  std::optional<std::uint64_t> at;
  /// The part of an archive in several that the directory says it is in.
  std::uint64_t part = 0;
  /// What follows the bytes, such as a data descriptor.
  std::string after;

  /// Changes what directory and local header say.
  template <class Change>
  ZipPart& both(Change change) {
    change(local);
    change(directory);
    return *this;
  }
};

inline ZipPart zip_part(std::string name, std::string bytes, std::uint64_t crc32) {
  ZipPart part;
  part.local = {
      .name = std::move(name), .crc32 = crc32, .stored_size = bytes.size(), .size = bytes.size()};
  part.directory = part.local;
  part.stored = std::move(bytes);
  return part;
}

/// What the end says of the directory, where that is not the truth.
struct ZipEndFields {
  std::optional<std::uint64_t> records = {}, size = {}, begin = {}, locator = {};
  std::uint64_t part = 0, zip64_size = 44;
  bool zip64 = false;
  std::string comment = {};
};

inline std::string number(std::uint64_t value, std::size_t bytes) {
  std::string text;
  formats::append_little_endian(text, value, bytes);
  return text;
}

/// Flags to sizes, in both headers.
inline std::string common_fields(const ZipFields& fields) {
  return number(fields.flags, 2) + number(fields.method, 2) + number(0x00210000, 4) +
         number(fields.crc32, 4) + number(fields.stored_size, 4) + number(fields.size, 4) +
         number(fields.name.size(), 2) + number(fields.extra.size(), 2);
}

inline std::string local_header(const ZipFields& fields) {
  return "PK\3\4" + number(20, 2) + common_fields(fields) + fields.name + fields.extra;
}

inline std::string zip_bytes(const std::vector<ZipPart>& parts, const ZipEndFields& end = {}) {
  std::string file, directory;
  for (const ZipPart& part : parts) {
    const std::uint64_t at = part.at.value_or(file.size());
    directory += "PK\1\2" + number(20, 2) + number(20, 2) + common_fields(part.directory) +
                 number(0, 2) + number(part.part, 2) + number(0, 6) + number(at, 4) +
                 part.directory.name + part.directory.extra;
    file += local_header(part.local) + part.stored + part.after;
  }
  const std::uint64_t begin = end.begin.value_or(file.size());
  const std::uint64_t size = end.size.value_or(directory.size());
  const std::uint64_t records = end.records.value_or(parts.size());
  file += directory;
  const std::uint64_t zip64_at = file.size();
  if (end.zip64) {
    file += "PK\6\6" + number(end.zip64_size, 8) + number(45, 2) + number(45, 2) +
            number(end.part, 4) + number(0, 4) + number(records, 8) + number(records, 8) +
            number(size, 8) + number(begin, 8) + "PK\6\7" + number(0, 4) +
            number(end.locator.value_or(zip64_at), 8) + number(1, 4);
  }
  const auto field = [&end](std::uint64_t value, std::size_t bytes) {
    return number(end.zip64 ? ~std::uint64_t{0} : value, bytes);
  };
  return file + "PK\5\6" + field(end.part, 2) + number(0, 2) + field(records, 2) +
         field(records, 2) + field(size, 4) + field(begin, 4) + number(end.comment.size(), 2) +
         end.comment;
}

/// Raw deflate of up to 65,535 bytes, in one block that does not compress.
inline std::string deflate_stored(std::string_view bytes) {
  return "\1" + number(bytes.size(), 2) + number(~bytes.size(), 2) + std::string(bytes);
}

/// The bytes that hexadecimal digits spell.
inline std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  return bytes;
}

}  // namespace attn::testing
