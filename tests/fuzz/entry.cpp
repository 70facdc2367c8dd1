#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/expect.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attn::formats::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
