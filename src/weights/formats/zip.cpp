#include "weights/formats/zip.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "weights/formats/crc32.h"
#include "weights/formats/format_error.h"
#include "weights/formats/inflate.h"
#include "weights/formats/zip_directory.h"

namespace attn::formats {
namespace {

[[noreturn]] void refuse(const ZipRecord& record, const std::string& rule) {
  throw FormatError("record " + in_quotes(record.name) + ": " + rule);
}

}  // namespace

ZipArchive::ZipArchive(std::string_view file) : file_(file), records_(read_zip_directory(file)) {
  has_checksums_ =
      std::ranges::any_of(records_, [](const ZipRecord& record) { return record.crc32 != 0; });
  std::erase_if(records_, [](const ZipRecord& record) { return record.name.ends_with('/'); });

  by_name_.resize(records_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  const auto name = [this](std::size_t i) -> std::string_view { return records_[i].name; };
  std::ranges::sort(by_name_, {}, name);
  const auto twice = std::ranges::adjacent_find(by_name_, {}, name);
  if (twice != by_name_.end()) refuse(records_[*twice], "expected once, got twice");
}

const ZipRecord* ZipArchive::find(std::string_view name) const {
  const auto name_of_index = [this](std::size_t i) -> std::string_view { return records_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of_index);
  return found != by_name_.end() && records_[*found].name == name ? &records_[*found] : nullptr;
}

std::string ZipArchive::read(const ZipRecord& record, std::uint64_t most) const {
  if (record.size > most) {
    refuse(record, "expected at most " + std::to_string(most) + " bytes, got " +
                       std::to_string(record.size));
  }
  const std::string_view stored = file_.substr(record.begin, record.stored_size);
  std::string bytes;
  if (record.deflated) {
    bytes.resize(record.size);
    try {
      inflate(stored, bytes);
    } catch (const FormatError& error) {
      refuse(record, error.what());
    }
  } else {
    bytes = stored;
  }
  if (has_checksums_ && crc32(bytes) != record.crc32)
    refuse(record, "its bytes do not have its checksum: the file is damaged");
  return bytes;
}

Storage ZipArchive::storage(const ZipRecord& record) const {
  return {.begin = record.begin,
          .stored_size = record.stored_size,
          .size = record.size,
          .deflated = record.deflated,
          .crc32 = has_checksums_ ? std::optional(record.crc32) : std::nullopt};
}

}  // namespace attn::formats
