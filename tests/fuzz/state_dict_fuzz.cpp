#include <string>
#include <vector>

#include "fuzz/expect.h"
#include "weights/formats/pickle.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/zip.h"
#include "weights/formats/zip_writer.h"

namespace attn::formats {
namespace {

/// A checkpoint with this pickle and some storages that it may name.
std::string checkpoint(std::string_view pickle) {
  std::string file;
  ZipWriter writer([&file](std::string_view bytes) { file += bytes; });
  const std::string bytes(64, '\1');
  writer.add("archive/data.pkl", pickle);
  writer.add("archive/byteorder", "little");
  for (const char* name : {"archive/data/0", "archive/data/1", "archive/data/2"})
    writer.add(name, bytes);
  writer.finish();
  return file;
}

/// What is written of a checkpoint is read as that checkpoint.
void write_and_read(const StoredFile& read, std::string_view file) {
  std::vector<std::string_view> storages;
  for (const Storage& storage : read.storages)
    storages.push_back(file.substr(storage.begin, storage.size));
  std::string written;
  const auto sink = [&written](std::string_view piece) { written += piece; };
  if (!accepted([&] { write_state_dict(read, storages, sink); })) return;
  expect(accepted([&] {
           const ZipArchive archive(written);
           const StoredFile again = read_state_dict(written, archive);
           check(again, written);
           expect(again.tensors.size() == read.tensors.size(), "as many tensors");
           for (std::size_t i = 0; i < again.tensors.size(); ++i) {
             const StoredTensor& got = again.tensors[i];
             const StoredTensor& expected = read.tensors[i];
             expect(got.name == expected.name, "the same name");
             expect(got.type == expected.type, "the same type");
             expect(got.sizes == expected.sizes, "the same sizes");
           }
         }),
         "to read what was written");
}

}  // namespace

/// The input is a pickle, read as such, as that of a checkpoint, and as a legacy file.
void fuzz(std::string_view input) {
  accepted([&] { read_pickle(input); });
  const std::string file = checkpoint(input);
  const ZipArchive archive(file);
  for (const bool opaque : {false, true}) {
    const StateDictOptions options = {.opaque = opaque};
    accepted([&] {
      const StoredFile read = read_state_dict(file, archive, options);
      check(read, file);
      write_and_read(read, file);
    });
    accepted([&] { check(read_legacy_state_dict(input, options), input); });
  }
}

}  // namespace attn::formats
