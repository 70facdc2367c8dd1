#include "weights/formats/printable.h"

#include <cstddef>
#include <cstdint>

#include "weights/formats/utf8.h"

namespace attn::formats {
namespace {

/// The bytes of the character that begins with `first`; 1 where none does.
std::size_t length_of(unsigned char first) {
  return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
}

std::uint32_t code_point_of(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return first;
  std::uint32_t code = first & (0x7F >> character.size());
  for (const char byte : character.substr(1)) code = code << 6 | (byte & 0x3F);
  return code;
}

/// C0 and C1; marks, embeddings, overrides and isolates of direction; ends of lines and paragraphs.
bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x061C || code == 0x200E ||
         code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

/// "\\x1b"
std::string escape(char kind, int digits, std::uint32_t code) {
  std::string text{'\\', kind};
  for (int i = digits; i-- > 0;) text += "0123456789abcdef"[code >> (4 * i) & 0xF];
  return text;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    std::string_view character =
        text.substr(0, length_of(static_cast<unsigned char>(text.front())));
    const bool is_text = is_utf8(character);
    if (!is_text) character = text.substr(0, 1);
    text.remove_prefix(character.size());
    const std::uint32_t code = code_point_of(character);
    if (!is_text || (is_control(code) && code < 0x80)) {
      result += escape('x', 2, static_cast<unsigned char>(character.front()));
    } else if (is_control(code)) {
      result += escape('u', 4, code);
    } else {
      result += character;
    }
  }
  return result;
}

}  // namespace attn::formats
