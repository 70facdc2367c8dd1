#include "weights/formats/pickle_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>

#include "weights/formats/little_endian.h"
#include "weights/formats/utf8.h"

namespace attn::formats {
namespace {

struct OpcodeName {
  char code;
  std::string_view name;
};

constexpr std::array kOpcodes = {
    OpcodeName{'(', "MARK"},
    OpcodeName{'.', "STOP"},
    OpcodeName{'0', "POP"},
    OpcodeName{'1', "POP_MARK"},
    OpcodeName{'2', "DUP"},
    OpcodeName{'F', "FLOAT"},
    OpcodeName{'I', "INT"},
    OpcodeName{'J', "BININT"},
    OpcodeName{'K', "BININT1"},
    OpcodeName{'L', "LONG"},
    OpcodeName{'M', "BININT2"},
    OpcodeName{'N', "NONE"},
    OpcodeName{'P', "PERSID"},
    OpcodeName{'Q', "BINPERSID"},
    OpcodeName{'R', "REDUCE"},
    OpcodeName{'S', "STRING"},
    OpcodeName{'T', "BINSTRING"},
    OpcodeName{'U', "SHORT_BINSTRING"},
    OpcodeName{'V', "UNICODE"},
    OpcodeName{'X', "BINUNICODE"},
    OpcodeName{'a', "APPEND"},
    OpcodeName{'b', "BUILD"},
    OpcodeName{'c', "GLOBAL"},
    OpcodeName{'d', "DICT"},
    OpcodeName{'}', "EMPTY_DICT"},
    OpcodeName{'e', "APPENDS"},
    OpcodeName{'g', "GET"},
    OpcodeName{'h', "BINGET"},
    OpcodeName{'i', "INST"},
    OpcodeName{'j', "LONG_BINGET"},
    OpcodeName{'l', "LIST"},
    OpcodeName{']', "EMPTY_LIST"},
    OpcodeName{'o', "OBJ"},
    OpcodeName{'p', "PUT"},
    OpcodeName{'q', "BINPUT"},
    OpcodeName{'r', "LONG_BINPUT"},
    OpcodeName{'s', "SETITEM"},
    OpcodeName{'t', "TUPLE"},
    OpcodeName{')', "EMPTY_TUPLE"},
    OpcodeName{'u', "SETITEMS"},
    OpcodeName{'B', "BINBYTES"},
    OpcodeName{'C', "SHORT_BINBYTES"},
    OpcodeName{'G', "BINFLOAT"},
    OpcodeName{'\x80', "PROTO"},
    OpcodeName{'\x81', "NEWOBJ"},
    OpcodeName{'\x82', "EXT1"},
    OpcodeName{'\x83', "EXT2"},
    OpcodeName{'\x84', "EXT4"},
    OpcodeName{'\x85', "TUPLE1"},
    OpcodeName{'\x86', "TUPLE2"},
    OpcodeName{'\x87', "TUPLE3"},
    OpcodeName{'\x88', "NEWTRUE"},
    OpcodeName{'\x89', "NEWFALSE"},
    OpcodeName{'\x8a', "LONG1"},
    OpcodeName{'\x8b', "LONG4"},
    OpcodeName{'\x8c', "SHORT_BINUNICODE"},
    OpcodeName{'\x8d', "BINUNICODE8"},
    OpcodeName{'\x8e', "BINBYTES8"},
    OpcodeName{'\x8f', "EMPTY_SET"},
    OpcodeName{'\x90', "ADDITEMS"},
    OpcodeName{'\x91', "FROZENSET"},
    OpcodeName{'\x92', "NEWOBJ_EX"},
    OpcodeName{'\x93', "STACK_GLOBAL"},
    OpcodeName{'\x94', "MEMOIZE"},
    OpcodeName{'\x95', "FRAME"},
    OpcodeName{'\x96', "BYTEARRAY8"},
    OpcodeName{'\x97', "NEXT_BUFFER"},
    OpcodeName{'\x98', "READONLY_BUFFER"},
};

/// The number of `count` hexadecimal digits at the start of `text`, or nothing.
std::optional<std::uint32_t> hexadecimal(std::string_view text, std::size_t count) {
  std::uint32_t value = 0;
  if (text.size() < count) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + count, value, 16);
  if (error != std::errc() || end != text.data() + count) return std::nullopt;
  return value;
}

}  // namespace

std::string_view opcode_name(unsigned char opcode) {
  const auto* row = std::ranges::find(kOpcodes, static_cast<char>(opcode), &OpcodeName::code);
  return row == kOpcodes.end() ? std::string_view() : row->name;
}

std::optional<PickleValue> int_from_digits(std::string_view digits) {
  PickleValue value{.kind = PickleKind::kInt};
  if (digits.starts_with('+')) {
    digits.remove_prefix(1);
    if (digits.starts_with('-')) return std::nullopt;
  }
  const char* const last = digits.data() + digits.size();
  const auto [end, error] = std::from_chars(digits.data(), last, value.integer);
  if (end != last || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range) value.text = digits;
  return value;
}

PickleValue int_from_bytes(std::string_view bytes) {
  PickleValue value{.kind = PickleKind::kInt};
  const auto high_bit = [&](std::size_t i) { return (bytes[i] & 0x80) != 0; };
  std::size_t length = bytes.size();
  const bool negative = length > 0 && high_bit(length - 1);
  // A byte that only repeats the sign of the byte below it adds nothing.
  const char sign = negative ? '\xFF' : '\0';
  while (length > 8 && bytes[length - 1] == sign && high_bit(length - 2) == negative) --length;
  if (length > 8) {
    value.text = bytes.substr(0, length);
    return value;
  }
  std::uint64_t bits = little_endian(bytes, 0, length);
  if (negative && length < 8) bits |= ~std::uint64_t{0} << (8 * length);
  value.integer = static_cast<std::int64_t>(bits);
  return value;
}

std::optional<std::string> unquoted(std::string_view quoted) {
  if (quoted.size() < 2 || quoted.front() != quoted.back() ||
      (quoted.front() != '\'' && quoted.front() != '"')) {
    return std::nullopt;
  }
  quoted = quoted.substr(1, quoted.size() - 2);
  constexpr std::string_view kEscapes = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string text;
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    if (quoted[i] != '\\') {
      text += quoted[i];
      continue;
    }
    const std::string_view rest = quoted.substr(i + 1);
    if (rest.empty()) return std::nullopt;
    if (const std::size_t escape = kEscapes.find(rest[0]); escape != kEscapes.npos) {
      text += kMeanings[escape];
      i += 1;
    } else if (rest[0] == 'x') {
      const auto byte = hexadecimal(rest.substr(1), 2);
      if (!byte) return std::nullopt;
      text += static_cast<char>(*byte);
      i += 3;
    } else {
      // Python never writes another escape.
      return std::nullopt;
    }
  }
  return text;
}

std::optional<std::string> from_raw_unicode_escape(std::string_view text) {
  std::string result;
  // The first half of a pair, which Python 2 wrote as two escapes.
  std::uint32_t high = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::uint32_t code_point = static_cast<unsigned char>(text[i]);
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '\\' && (next == 'u' || next == 'U')) {
      const std::size_t digits = next == 'u' ? 4 : 8;
      const auto escaped = hexadecimal(text.substr(i + 2), digits);
      if (!escaped || *escaped > 0x10FFFF) return std::nullopt;
      code_point = *escaped;
      i += 1 + digits;
    } else if (text[i] == '\\' && next == '\\') {
      // The second backslash escapes nothing either.
      result += '\\';
      ++i;
    }
    if (high != 0 && code_point >= 0xDC00 && code_point <= 0xDFFF) {
      result.resize(result.size() - 3);
      code_point = 0x10000 + ((high - 0xD800) << 10) + (code_point - 0xDC00);
    }
    high = code_point >= 0xD800 && code_point <= 0xDBFF ? code_point : 0;
    append_utf8(result, code_point);
  }
  return result;
}

}  // namespace attn::formats
