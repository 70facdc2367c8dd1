#include "fuzz/expect.h"
#include "weights/formats/safetensors.h"

namespace attn::formats {

/// The input is a safetensors file.
void fuzz(std::string_view file) {
  accepted([&] {
    const std::uint64_t length = safetensors_header_length(file, file.size());
    const std::string_view rest = file.substr(kSafetensorsLengthBytes);
    const std::uint64_t data_size = rest.size() - length;
    const SafetensorsHeader header = parse_safetensors_header(rest.substr(0, length), data_size);
    std::uint64_t next = 0;
    for (const SafetensorsEntry& entry : header.tensors) {
      expect(entry.begin == next && entry.begin <= entry.end, "tensors one after the other");
      next = entry.end;
    }
    expect(next == data_size, "tensors that fill the data");
  });
}

}  // namespace attn::formats
