#include "weights/formats/zip_directory.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>

#include "weights/formats/format_error.h"
#include "weights/formats/inflate.h"
#include "weights/formats/limits.h"
#include "weights/formats/little_endian.h"
#include "weights/formats/zip_end.h"

namespace attn::formats {
namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kStored = 0, kDeflated = 8;
/// Bits of the flags. What follows the data repeats, or first tells, its sizes and checksum.
constexpr std::uint64_t kDescriptorFollows = 1U << 3U;
/// Encrypted; a patch of other data; strongly encrypted; its header encrypted.
constexpr std::uint64_t kUnreadable = 1U << 0U | 1U << 5U | 1U << 6U | 1U << 13U;

[[noreturn]] void refuse(std::string_view name, const std::string& rule) {
  throw FormatError("record " + in_quotes(name) + ": " + rule);
}

/// Walks over fixed fields, name and extra fields of a header, none of which reaches outside it.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::uint64_t size() const { return rest_.size(); }
  /// The next number of `count` bytes.
  std::uint64_t number(std::size_t count) { return little_endian(bytes(count), 0, count); }
  std::string_view bytes(std::size_t count) {
    if (count > rest_.size()) throw FormatError("zip archive: a header reaches outside it");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

 private:
  std::string_view rest_;
};

/// The extra field zip64 among all extra fields of a header.
std::optional<std::string_view> zip64_field(std::string_view name, std::string_view extra) {
  std::optional<std::string_view> found;
  // Up to three bytes may be left over: some writers pad.
  for (Reader reader(extra); reader.size() >= 4;) {
    const std::uint64_t id = reader.number(2);
    const std::uint64_t size = reader.number(2);
    if (size > reader.size())
      refuse(name, "expected its extra fields inside its header, got " + std::to_string(size) +
                       " bytes of one, where " + std::to_string(reader.size()) + " are left");
    const std::string_view field = reader.bytes(size);
    if (id != 1) continue;
    if (found) refuse(name, "expected one zip64 field, got two");
    found = field;
  }
  return found;
}

/// What the directory and a local header both say of a record.
struct Header {
  std::string_view name;
  std::uint64_t flags = 0, method = 0, crc32 = 0;
  std::uint64_t stored_size = 0, size = 0;
};

/// Replaces numbers that are 0xFFFFFFFF by those of the zip64 field, which has them in this order.
void use_zip64(std::string_view name, std::string_view extra,
               std::initializer_list<std::uint64_t*> numbers) {
  const auto field = zip64_field(name, extra);
  if (!field) return;
  Reader reader(*field);
  for (std::uint64_t* number : numbers) {
    if (*number != 0xFFFFFFFF) continue;
    if (reader.size() < 8)
      refuse(name, "expected its sizes in the zip64 field, got " + std::to_string(field->size()) +
                       " bytes");
    *number = reader.number(8);
  }
}

/// The next entry of the directory, with where it says that the local header is.
std::pair<Header, std::uint64_t> read_entry(Reader& directory) {
  if (directory.size() < kZipEntryBytes || directory.bytes(4) != "PK\1\2"sv)
    throw FormatError("zip archive: expected a record in its directory, got something else");
  Header entry;
  directory.bytes(4);  // versions
  entry.flags = directory.number(2);
  entry.method = directory.number(2);
  directory.bytes(4);  // time
  entry.crc32 = directory.number(4);
  entry.stored_size = directory.number(4);
  entry.size = directory.number(4);
  const std::uint64_t name = directory.number(2);
  const std::uint64_t extra = directory.number(2);
  const std::uint64_t comment = directory.number(2);
  const std::uint64_t part = directory.number(2);
  directory.bytes(6);  // attributes
  std::uint64_t at = directory.number(4);
  entry.name = directory.bytes(name);
  use_zip64(entry.name, directory.bytes(extra), {&entry.size, &entry.stored_size, &at});
  directory.bytes(comment);
  if (part != 0 && part != 0xFFFF) refuse(entry.name, "expected it in this file, got another part");
  return {entry, at};
}

/// The local header, and how many bytes it has.
std::pair<Header, std::uint64_t> read_local(std::string_view name, std::string_view bytes) {
  Reader reader(bytes);
  if (bytes.size() < kLocalBytes || reader.bytes(4) != "PK\3\4"sv)
    refuse(name, "expected its local header where the directory says, got something else");
  Header local;
  reader.bytes(2);  // version
  local.flags = reader.number(2);
  local.method = reader.number(2);
  reader.bytes(4);  // time
  local.crc32 = reader.number(4);
  local.stored_size = reader.number(4);
  local.size = reader.number(4);
  const std::uint64_t name_bytes = reader.number(2);
  const std::uint64_t extra = reader.number(2);
  if (name_bytes + extra > reader.size()) refuse(name, "its local header reaches outside the file");
  local.name = reader.bytes(name_bytes);
  use_zip64(name, reader.bytes(extra), {&local.size, &local.stored_size});
  return {local, bytes.size() - reader.size()};
}

void check_entry(const Header& entry) {
  if ((entry.flags & kUnreadable) != 0) refuse(entry.name, "expected no encryption, got some");
  if (entry.method != kStored && entry.method != kDeflated)
    refuse(entry.name, "expected a stored or deflated record, got compression method " +
                           std::to_string(entry.method));
  const bool possible = entry.method == kStored ? entry.size == entry.stored_size
                                                : entry.size / kMostInflation <= entry.stored_size;
  if (!possible) {
    refuse(entry.name, "expected a size that " + std::to_string(entry.stored_size) +
                           (entry.method == kStored ? " stored" : " deflated") +
                           " bytes can have, got " + std::to_string(entry.size));
  }
}

void check_local(const Header& entry, const Header& local) {
  const auto agree = [&](std::string_view what, std::uint64_t value, std::uint64_t expected) {
    // Whoever writes without seeking back leaves 0.
    if (value == expected || (value == 0 && (local.flags & kDescriptorFollows) != 0)) return;
    refuse(entry.name, "expected the " + std::string(what) + " of the directory, " +
                           std::to_string(expected) + ", in its local header, got " +
                           std::to_string(value));
  };
  if (local.name != entry.name)
    refuse(entry.name, "expected its name in its local header, got " + in_quotes(local.name));
  if ((local.flags & kUnreadable) != 0) refuse(entry.name, "expected no encryption, got some");
  if (local.method != entry.method)
    refuse(entry.name, "expected the compression method of the directory, " +
                           std::to_string(entry.method) + ", got " + std::to_string(local.method));
  agree("checksum", local.crc32, entry.crc32);
  agree("stored size", local.stored_size, entry.stored_size);
  agree("size", local.size, entry.size);
}

/// Where a record lies, its local header included.
struct Place {
  std::uint64_t begin = 0, end = 0;
  std::size_t record = 0;
};

void check_overlaps(std::vector<Place>& places, const std::vector<ZipRecord>& records) {
  std::ranges::sort(places, {}, [](const Place& p) { return std::tuple(p.begin, p.end); });
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin < places[i - 1].end)
      refuse(records[places[i].record].name, "expected bytes of its own, got some of record " +
                                                 in_quotes(records[places[i - 1].record].name));
  }
}

/// A small archive may not fill the memory.
void check_inflated(const std::vector<ZipRecord>& records, std::uint64_t file_size) {
  const std::uint64_t most = std::max(kMostInflatedBytes, kMostInflatedTimes * file_size);
  std::uint64_t inflated = 0;
  for (const ZipRecord& record : records) {
    if (!record.deflated) continue;
    if (__builtin_add_overflow(inflated, record.size, &inflated) || inflated > most) {
      throw FormatError("zip archive: expected at most " + std::to_string(most) +
                        " bytes in its deflated records together, got more");
    }
  }
}

}  // namespace

std::vector<ZipRecord> read_zip_directory(std::string_view file) {
  const ZipEnd end = find_zip_end(file);
  Reader directory(file.substr(end.begin, end.end - end.begin));
  // Records lie before the directory.
  const std::string_view before = file.substr(0, end.begin);

  std::vector<ZipRecord> records;
  std::vector<Place> places;
  records.reserve(end.records);
  places.reserve(end.records);
  for (std::uint64_t i = 0; i < end.records; ++i) {
    const auto [entry, at] = read_entry(directory);
    check_entry(entry);
    if (at > before.size())
      refuse(entry.name, "expected it before the directory, got byte " + std::to_string(at));
    const auto [local, header_bytes] = read_local(entry.name, before.substr(at));
    check_local(entry, local);
    const std::uint64_t begin = at + header_bytes;
    if (entry.stored_size > before.size() - begin)
      refuse(entry.name, "expected " + std::to_string(entry.stored_size) +
                             " bytes before the directory, got " +
                             std::to_string(before.size() - begin));
    places.push_back({at, begin + entry.stored_size, records.size()});
    records.push_back({.name = std::string(entry.name),
                       .begin = begin,
                       .stored_size = entry.stored_size,
                       .size = entry.size,
                       .deflated = entry.method == kDeflated,
                       .crc32 = static_cast<std::uint32_t>(entry.crc32)});
  }
  if (directory.size() > 0)
    throw FormatError("zip archive: expected " + std::to_string(end.records) +
                      " records in its directory, got more");
  check_overlaps(places, records);
  check_inflated(records, file.size());
  return records;
}

}  // namespace attn::formats
