#pragma once

#include <string>
#include <string_view>

namespace attn::formats {

/// A text of a file as a terminal may show it: control and direction characters and what is no UTF-8
/// as "\x1b" or "\u202e", the rest as it is.
std::string printable(std::string_view text);

}  // namespace attn::formats
