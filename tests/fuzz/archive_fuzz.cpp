#include <string>

#include "fuzz/expect.h"
#include "weights/formats/little_endian.h"
#include "weights/formats/npy.h"
#include "weights/formats/pt2.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/torchscript.h"
#include "weights/formats/zip.h"
#include "weights/formats/zip_writer.h"

namespace attn::formats {
namespace {

/// A zip archive of records that stand one after the other in `input`: a byte with the length of the
/// name, two with that of the bytes, both. So a fuzzer need not keep places and checksums right.
std::string archive_of(std::string_view input) {
  std::string file;
  ZipWriter writer([&file](std::string_view bytes) { file += bytes; });
  while (input.size() >= 3) {
    const std::uint64_t name_bytes = little_endian(input, 0, 1);
    const std::uint64_t bytes = little_endian(input, 1, 2);
    input.remove_prefix(3);
    const std::string_view name = input.substr(0, name_bytes);
    input.remove_prefix(name.size());
    const std::string_view record = input.substr(0, bytes);
    input.remove_prefix(record.size());
    writer.add(name, record);
  }
  writer.finish();
  return file;
}

}  // namespace

/// The input is the records of an archive, which every reader of archives is given.
void fuzz(std::string_view input) {
  const std::string file = archive_of(input);
  accepted([&] {
    const ZipArchive archive(file);
    is_torchscript(archive);
    is_pt2(archive);
    accepted([&] { check(read_torchscript(file, archive), file); });
    accepted([&] { check(read_pt2(file, archive), file); });
    accepted([&] { check(read_npz(file, archive), file); });
    accepted([&] { check(read_state_dict(file, archive), file); });
  });
}

}  // namespace attn::formats
