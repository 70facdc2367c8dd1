#include "weights/formats/utf8.h"

#include <cstddef>

namespace attn::formats {

bool is_utf8(std::string_view text, bool surrogates) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i++]);
    if (first < 0x80) continue;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    // 10xxxxxx begins nothing, C0 and C1 only overlong forms, F5 and more lie beyond U+10FFFF.
    if (first < 0xC2 || first > 0xF4 || text.size() - i < static_cast<std::size_t>(more)) {
      return false;
    }
    std::uint32_t code_point = first & (0x3F >> more);
    for (int j = 0; j < more; ++j) {
      const auto next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xC0) != 0x80) return false;
      code_point = code_point << 6 | (next & 0x3F);
    }
    if (more == 2 && code_point < 0x800) return false;
    if (more == 3 && (code_point < 0x10000 || code_point > 0x10FFFF)) return false;
    if (!surrogates && code_point >= 0xD800 && code_point <= 0xDFFF) return false;
  }
  return true;
}

void append_utf8(std::string& text, std::uint32_t code_point) {
  const auto append = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) return append(code_point);
  if (code_point < 0x800) {
    append(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      append(0xE0 | code_point >> 12);
    } else {
      append(0xF0 | code_point >> 18);
      append(0x80 | (code_point >> 12 & 0x3F));
    }
    append(0x80 | (code_point >> 6 & 0x3F));
  }
  append(0x80 | (code_point & 0x3F));
}

}  // namespace attn::formats
