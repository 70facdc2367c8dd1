#include "weights/formats/zip_writer.h"

#include <algorithm>
#include <utility>

#include "weights/formats/crc32.h"
#include "weights/formats/format_error.h"
#include "weights/formats/little_endian.h"

namespace attn::formats {
namespace {

using namespace std::string_view_literals;

/// A number that its field cannot hold stands in zip64's, and the field has this.
constexpr std::uint64_t kSeeZip64 = 0xFFFFFFFF;
constexpr std::uint64_t kMostShort = 0xFFFF;

/// Fields of local header and directory between their versions and their sizes.
void append_kind(std::string& to) {
  append_little_endian(to, 0x0800, 2);  // flags: the name is UTF-8
  append_little_endian(to, 0, 2);       // stored
  append_little_endian(to, 0, 2);       // midnight,
  append_little_endian(to, 0x0021, 2);  // 1 January 1980: the same records, the same bytes
}

/// The lowest version of the format that has what the header needs.
std::uint64_t version(bool zip64) { return zip64 ? 45 : 20; }

std::string zip64_field(std::initializer_list<std::uint64_t> numbers) {
  std::string field;
  const auto large = [](std::uint64_t number) { return number >= kSeeZip64; };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(numbers, large));
  if (count == 0) return field;
  append_little_endian(field, 1, 2);
  append_little_endian(field, 8 * count, 2);
  for (const std::uint64_t number : numbers) {
    if (large(number)) append_little_endian(field, number, 8);
  }
  return field;
}

/// An extra field, or nothing, behind which `start` becomes a multiple of `alignment`.
std::string padding(std::uint64_t start, std::uint64_t alignment) {
  std::uint64_t bytes = (alignment - start % alignment) % alignment;
  // The field's own header takes four.
  while (bytes > 0 && bytes < 4) bytes += alignment;
  std::string field;
  if (bytes == 0) return field;
  field = "FB";
  append_little_endian(field, bytes - 4, 2);
  return field.append(bytes - 4, 'Z');
}

}  // namespace

ZipWriter::ZipWriter(Sink sink) : sink_(std::move(sink)) {}

void ZipWriter::write(std::string_view bytes) {
  sink_(bytes);
  written_ += bytes.size();
}

void ZipWriter::add(std::string_view name, std::span<const std::string_view> pieces,
                    std::uint64_t alignment) {
  Record record = {.name = std::string(name), .header = written_};
  for (const std::string_view piece : pieces) {
    record.size += piece.size();
    record.crc32 = crc32(piece, record.crc32);
  }
  constexpr std::uint64_t kFixedBytes = 30;
  std::string extra = zip64_field({record.size, record.size});
  const std::uint64_t version_needed = version(!extra.empty());
  extra += padding(written_ + kFixedBytes + name.size() + extra.size(), alignment);
  if (std::max(name.size(), extra.size()) > kMostShort) {
    throw FormatError("record " + in_quotes(name) +
                      ": expected a name and a padding of less than 64 KiB, got more");
  }

  std::string header("PK\3\4"sv);
  append_little_endian(header, version_needed, 2);
  append_kind(header);
  append_little_endian(header, record.crc32, 4);
  append_little_endian(header, std::min(record.size, kSeeZip64), 4);
  append_little_endian(header, std::min(record.size, kSeeZip64), 4);
  append_little_endian(header, name.size(), 2);
  append_little_endian(header, extra.size(), 2);
  write(header.append(name).append(extra));
  for (const std::string_view piece : pieces) write(piece);
  records_.push_back(std::move(record));
}

void ZipWriter::finish() {
  const std::uint64_t begin = written_;
  for (const Record& record : records_) {
    const std::string extra = zip64_field({record.size, record.size, record.header});
    std::string entry("PK\1\2"sv);
    append_little_endian(entry, version(!extra.empty()), 2);  // made by, on no system in particular
    append_little_endian(entry, version(!extra.empty()), 2);
    append_kind(entry);
    append_little_endian(entry, record.crc32, 4);
    append_little_endian(entry, std::min(record.size, kSeeZip64), 4);
    append_little_endian(entry, std::min(record.size, kSeeZip64), 4);
    append_little_endian(entry, record.name.size(), 2);
    append_little_endian(entry, extra.size(), 2);
    entry.append(2 + 2 + 2 + 4, '\0');  // comment, part, attributes
    append_little_endian(entry, std::min(record.header, kSeeZip64), 4);
    write(entry.append(record.name).append(extra));
  }

  const std::uint64_t end = written_;
  const std::uint64_t size = end - begin;
  const std::uint64_t count = records_.size();
  std::string tail;
  if (count >= kMostShort || size >= kSeeZip64 || begin >= kSeeZip64) {
    tail = "PK\6\6"sv;
    append_little_endian(tail, 44, 8);  // what follows of this record
    append_little_endian(tail, version(true), 2);
    append_little_endian(tail, version(true), 2);
    append_little_endian(tail, 0, 4 + 4);  // parts
    append_little_endian(tail, count, 8);
    append_little_endian(tail, count, 8);
    append_little_endian(tail, size, 8);
    append_little_endian(tail, begin, 8);
    tail += "PK\6\7"sv;
    append_little_endian(tail, 0, 4);
    append_little_endian(tail, end, 8);
    append_little_endian(tail, 1, 4);  // one part
  }
  tail += "PK\5\6"sv;
  append_little_endian(tail, 0, 2 + 2);
  append_little_endian(tail, std::min(count, kMostShort), 2);
  append_little_endian(tail, std::min(count, kMostShort), 2);
  append_little_endian(tail, std::min(size, kSeeZip64), 4);
  append_little_endian(tail, std::min(begin, kSeeZip64), 4);
  append_little_endian(tail, 0, 2);  // comment
  write(tail);
}

}  // namespace attn::formats
