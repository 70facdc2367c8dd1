#include <string>

#include "fuzz/expect.h"
#include "weights/formats/inflate.h"
#include "weights/formats/npy.h"
#include "weights/formats/zip.h"

namespace attn::formats {
namespace {

constexpr std::uint64_t kMost = 1'000'000;

void read_records(std::string_view file, const ZipArchive& archive) {
  std::uint64_t stored = 0;
  for (const ZipRecord& record : archive.records()) {
    expect(archive.find(record.name) == &record, "to find a record by its name");
    stored += record.stored_size;
    StoredFile one;
    one.storages = {archive.storage(record)};
    check(one, file);
    accepted([&] {
      expect(archive.read(record, kMost).size() == record.size, "all bytes of a record");
    });
  }
  expect(stored <= file.size(), "records that do not overlap");
}

void read_arrays(std::string_view file, const ZipArchive& archive) {
  const StoredFile arrays = read_npz(file, archive);
  check(arrays, file);
  for (const Storage& storage : arrays.storages) {
    if (!storage.deflated || storage.size > kMost) continue;
    std::string bytes(storage.size, '\0');
    accepted(
        [&] { inflate(file.substr(storage.begin, storage.stored_size), bytes, storage.skip); });
  }
}

}  // namespace

/// The input is a zip archive.
void fuzz(std::string_view file) {
  accepted([&] {
    const ZipArchive archive(file);
    read_records(file, archive);
    read_arrays(file, archive);
  });
}

}  // namespace attn::formats
