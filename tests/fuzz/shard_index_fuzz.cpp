#include "weights/formats/shard_index.h"

#include "fuzz/expect.h"

namespace attn::formats {

/// The input is the index of a sharded checkpoint.
void fuzz(std::string_view json) {
  accepted([&] {
    const ShardIndex index = parse_shard_index(json);
    for (const std::string& file : index.files) {
      expect(!file.empty() && file != "." && file != "..", "the name of a file");
      expect(file.find_first_of(std::string_view("/\\\0", 3)) == file.npos,
             "a file beside the index");
    }
    for (const auto& [name, file] : index.tensors)
      expect(file < index.files.size(), "a tensor in one of the files");
  });
}

}  // namespace attn::formats
