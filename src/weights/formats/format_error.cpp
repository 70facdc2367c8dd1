#include "weights/formats/format_error.h"

#include <algorithm>
#include <cstddef>

namespace attn::formats {

std::string in_quotes(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  std::size_t length = std::min(name.size(), kLongest);
  if (length < name.size()) {
    // Not in the middle of a character: bytes 10xxxxxx continue the one before.
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xC0) == 0x80) --length;
  }
  std::string text = "\"";
  for (const char c : name.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  return text + (length < name.size() ? "…\"" : "\"");
}

}  // namespace attn::formats
