#include "weights/formats/format_error.h"

#include <algorithm>
#include <cstddef>

#include "weights/formats/printable.h"

namespace attn::formats {

std::string in_quotes(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  std::size_t length = std::min(name.size(), kLongest);
  if (length < name.size()) {
    // Not in the middle of a character: bytes 10xxxxxx continue the one before.
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xC0) == 0x80) --length;
  }
  return '"' + printable(name.substr(0, length)) + (length < name.size() ? "…\"" : "\"");
}

void refuse(std::string_view where, std::string_view expected, std::string_view got) {
  std::string text(where);
  text.append(": expected ").append(expected).append(", got ").append(got);
  throw FormatError(text);
}

}  // namespace attn::formats
