#include <array>
#include <string>

#include "fuzz/expect.h"
#include "weights/formats/pickle.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/zip.h"
#include "weights/formats/zip_writer.h"

namespace attn::fuzz {
namespace {

using namespace attn::formats;

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

}  // namespace
}  // namespace attn::fuzz

/// The input is a pickle, read as such, as that of a checkpoint, and as a legacy file.
// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attn::formats;
  using namespace attn::fuzz;
  const std::string_view input = text(data, size);
  accepted([&] { read_pickle(input); });
  const std::string file = checkpoint(input);
  const ZipArchive archive(file);
  for (const bool opaque : {false, true}) {
    const StateDictOptions options = {.opaque = opaque};
    accepted([&] { check(read_state_dict(file, archive, options), file); });
    accepted([&] { check(read_legacy_state_dict(input, options), input); });
  }
  return 0;
}
