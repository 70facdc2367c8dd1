#include "weights/formats/pickle_scalars.h"

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "weights/formats/format_error.h"
#include "weights/formats/pickle_text.h"

namespace attn::formats {
namespace {

using Index = PickleValue::Index;
using enum PickleKind;

[[noreturn]] void refuse(const std::string& expected, std::string_view got) {
  throw FormatError("expected " + expected + ", got " + in_quotes(got));
}

Index add_digits(PickleBuilder& builder, std::string_view digits) {
  const auto number = int_from_digits(digits);
  if (!number) refuse("decimal digits", digits);
  return builder.add(*number);
}

Index add_float(PickleBuilder& builder, std::uint64_t bits) {
  return builder.add({.kind = kFloat, .integer = static_cast<std::int64_t>(bits)});
}

Index add_bytes(PickleBytes& bytes, PickleBuilder& builder, std::size_t length_size) {
  return builder.add({.kind = kBytes, .text = bytes.take(bytes.number(length_size))});
}

std::optional<Index> read_number(unsigned char opcode, PickleBytes& bytes, PickleBuilder& builder) {
  switch (opcode) {
    case 'N':
      return builder.constant(kNone);
    case 0x88:
    case 0x89:
      return builder.constant(kBool, opcode == 0x88);
    case 'I': {
      const std::string_view digits = bytes.line();
      if (digits == "00" || digits == "01") return builder.constant(kBool, digits == "01");
      return add_digits(builder, digits);
    }
    case 'L': {
      std::string_view digits = bytes.line();
      if (digits.ends_with('L')) digits.remove_suffix(1);
      return add_digits(builder, digits);
    }
    case 'K':
      return builder.constant(kInt, static_cast<std::int64_t>(bytes.number(1)));
    case 'M':
      return builder.add(int_from_bytes(std::string(bytes.take(2)) + '\0'));
    case 'J':
      return builder.add(int_from_bytes(bytes.take(4)));
    case 0x8a:
    case 0x8b:
      return builder.add(int_from_bytes(bytes.take(bytes.number(opcode == 0x8a ? 1 : 4))));
    case 'F': {
      const std::string_view digits = bytes.line();
      double real = 0.0;
      const char* const last = digits.data() + digits.size();
      const auto [end, error] = std::from_chars(digits.data(), last, real);
      if (error != std::errc() || end != last) refuse("a number", digits);
      return add_float(builder, std::bit_cast<std::uint64_t>(real));
    }
    case 'G': {
      std::uint64_t bits = 0;
      for (const char byte : bytes.take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
      return add_float(builder, bits);
    }
    default:
      return std::nullopt;
  }
}

std::optional<Index> read_text(unsigned char opcode, PickleBytes& bytes, PickleBuilder& builder) {
  switch (opcode) {
    case 'S': {
      const std::string_view quoted = bytes.line();
      auto text = unquoted(quoted);
      if (!text) refuse("a string in quotes", quoted);
      return builder.old_string(builder.keep(*std::move(text)));
    }
    case 'U':
    case 'T':
      return builder.old_string(bytes.take(bytes.number(opcode == 'U' ? 1 : 4)));
    case 'V': {
      const std::string_view escaped = bytes.line();
      auto text = from_raw_unicode_escape(escaped);
      if (!text) refuse("escapes of characters", escaped);
      return builder.string(builder.keep(*std::move(text)));
    }
    case 0x8c:
      return builder.string(bytes.take(bytes.number(1)));
    case 'X':
      return builder.string(bytes.take(bytes.number(4)));
    case 0x8d:
      return builder.string(bytes.take(bytes.number(8)));
    case 'C':
      return add_bytes(bytes, builder, 1);
    case 'B':
      return add_bytes(bytes, builder, 4);
    case 0x8e:
    case 0x96:
      return add_bytes(bytes, builder, 8);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Index> read_scalar(unsigned char opcode, PickleBytes& bytes, PickleBuilder& builder) {
  const auto number = read_number(opcode, bytes, builder);
  return number ? number : read_text(opcode, bytes, builder);
}

}  // namespace attn::formats
