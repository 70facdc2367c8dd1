#include "weights/formats/zip_end.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/little_endian.h"

namespace attn::formats {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::size_t kZip64EndBytes = 56;
constexpr std::size_t kMostComment = 0xFFFF;

[[noreturn]] void refuse(const std::string& rule) { throw FormatError("zip archive: " + rule); }

/// Where the end record begins: the last that its comment joins to the end of the file.
std::size_t find_end_record(std::string_view file) {
  if (file.size() >= kEndBytes) {
    const std::size_t last = file.size() - kEndBytes;
    for (std::size_t comment = 0; comment <= std::min(last, kMostComment); ++comment) {
      const std::string_view end = file.substr(last - comment);
      if (end.starts_with("PK\5\6"sv) && little_endian(end, 20, 2) == comment)
        return last - comment;
    }
  }
  if (file.starts_with("PK"sv))
    refuse(
        "expected a directory at its end, got none: the file is truncated, or goes on behind it");
  refuse("expected one, got something else");
}

/// What an end record, of either size, says.
struct Declared {
  std::uint64_t disk = 0, directory_disk = 0, records_here = 0, records = 0;
  std::uint64_t size = 0, begin = 0;
};

/// The zip64 record that a locator just before the end record, at `end_record`, points at; moves
/// `end_record` to it. Nothing where there is no locator.
std::optional<Declared> read_zip64(std::string_view file, std::size_t& end_record) {
  if (end_record < kLocatorBytes) return std::nullopt;
  const std::size_t locator_at = end_record - kLocatorBytes;
  const std::string_view locator = file.substr(locator_at, kLocatorBytes);
  if (!locator.starts_with("PK\6\7"sv)) return std::nullopt;
  if (little_endian(locator, 4, 4) != 0 || little_endian(locator, 16, 4) > 1)
    refuse("expected one part, got several");

  const std::uint64_t at = little_endian(locator, 8, 8);
  if (locator_at < kZip64EndBytes || at > locator_at - kZip64EndBytes ||
      !file.substr(at).starts_with("PK\6\6"sv)) {
    refuse("expected its zip64 end record before byte " + std::to_string(locator_at) +
           ", got byte " + std::to_string(at));
  }
  const std::string_view record = file.substr(at, locator_at - at);
  // The record's own size does not count its first 12 bytes.
  if (const std::uint64_t size = little_endian(record, 4, 8); size != record.size() - 12) {
    refuse("expected a zip64 end record of " + std::to_string(record.size() - 12) + " bytes, got " +
           std::to_string(size));
  }
  end_record = at;
  return Declared{.disk = little_endian(record, 16, 4),
                  .directory_disk = little_endian(record, 20, 4),
                  .records_here = little_endian(record, 24, 8),
                  .records = little_endian(record, 32, 8),
                  .size = little_endian(record, 40, 8),
                  .begin = little_endian(record, 48, 8)};
}

/// The values of the end record: where zip64's are there too, these count, and an older one is
/// the same or says to look there.
std::uint64_t agree(std::uint64_t value, std::uint64_t zip64, std::uint64_t look_there) {
  if (value != zip64 && value != look_there) {
    refuse("expected its two end records to agree, got " + std::to_string(value) + " and " +
           std::to_string(zip64));
  }
  return zip64;
}

}  // namespace

ZipEnd find_zip_end(std::string_view file) {
  std::size_t end_record = find_end_record(file);
  const std::string_view end = file.substr(end_record, kEndBytes);
  Declared declared = {.disk = little_endian(end, 4, 2),
                       .directory_disk = little_endian(end, 6, 2),
                       .records_here = little_endian(end, 8, 2),
                       .records = little_endian(end, 10, 2),
                       .size = little_endian(end, 12, 4),
                       .begin = little_endian(end, 16, 4)};
  if (const auto zip64 = read_zip64(file, end_record)) {
    declared = {.disk = agree(declared.disk, zip64->disk, 0xFFFF),
                .directory_disk = agree(declared.directory_disk, zip64->directory_disk, 0xFFFF),
                .records_here = agree(declared.records_here, zip64->records_here, 0xFFFF),
                .records = agree(declared.records, zip64->records, 0xFFFF),
                .size = agree(declared.size, zip64->size, 0xFFFFFFFF),
                .begin = agree(declared.begin, zip64->begin, 0xFFFFFFFF)};
  }
  if (declared.disk != 0 || declared.directory_disk != 0 ||
      declared.records_here != declared.records) {
    refuse("expected one part, got several");
  }
  if (declared.size > end_record || declared.begin != end_record - declared.size) {
    refuse("expected its directory of " + std::to_string(declared.size) + " bytes at byte " +
           std::to_string(declared.begin) + ", just before byte " + std::to_string(end_record) +
           ": bytes are missing, or were put in front");
  }
  if (declared.records > kMaxZipRecords) {
    refuse("expected at most " + std::to_string(kMaxZipRecords) + " records, got " +
           std::to_string(declared.records));
  }
  if (declared.records > declared.size / kZipEntryBytes) {
    refuse("expected " + std::to_string(declared.records) + " records in its directory, got " +
           std::to_string(declared.size) + " bytes");
  }
  return {.records = declared.records, .begin = declared.begin, .end = end_record};
}

}  // namespace attn::formats
