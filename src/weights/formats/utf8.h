#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attn::formats {

/// Whether `text` is UTF-8: no overlong form, nothing beyond U+10FFFF, and no surrogates, unless
/// `surrogates` lets them pass, as Python's pickles do for its own strings.
bool is_utf8(std::string_view text, bool surrogates = false);

/// Appends the character of a code point, which is at most U+10FFFF; a surrogate in three bytes.
void append_utf8(std::string& text, std::uint32_t code_point);

}  // namespace attn::formats
