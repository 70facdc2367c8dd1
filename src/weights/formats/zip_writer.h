#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/formats/stored_file.h"

namespace attn::formats {

/// Writes a zip archive of stored records to a sink, with checksums, and zip64 where sizes need it.
/// The same records give the same bytes.
class ZipWriter {
 public:
  explicit ZipWriter(Sink sink);

  /// Adds a record made of `pieces`, one after the other. Its first byte lies at a multiple of
  /// `alignment` in the file; PyTorch pads by an extra field "FB".
  void add(std::string_view name, std::span<const std::string_view> pieces,
           std::uint64_t alignment = 1);
  void add(std::string_view name, std::string_view bytes, std::uint64_t alignment = 1) {
    add(name, std::span(&bytes, 1), alignment);
  }
  /// Writes the directory; nothing may be added after it.
  void finish();

 private:
  struct Record {
    std::string name;
    std::uint64_t header = 0;  // where its local header begins
    std::uint64_t size = 0;
    std::uint32_t crc32 = 0;
  };
  void write(std::string_view bytes);

  Sink sink_;
  std::uint64_t written_ = 0;
  std::vector<Record> records_;
};

}  // namespace attn::formats
