#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weights/formats/pickle.h"

/// The spellings of pickle's opcodes and of its text protocol.
namespace attn::formats {

/// The name of an opcode as Python's pickletools has it; empty for a byte that is none.
std::string_view opcode_name(unsigned char opcode);

/// The value of decimal digits with or without a sign: kInt.
std::optional<PickleValue> int_from_digits(std::string_view digits);
/// The value of an int in two's complement, the lowest byte first: kInt.
PickleValue int_from_bytes(std::string_view bytes);

/// What stands between the quotes of a Python 2 string, its escapes resolved.
std::optional<std::string> unquoted(std::string_view quoted);
/// The UTF-8 of Python's raw-unicode-escape.
std::optional<std::string> from_raw_unicode_escape(std::string_view text);

}  // namespace attn::formats
