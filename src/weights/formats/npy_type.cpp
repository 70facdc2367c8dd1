#include "weights/formats/npy_type.h"

#include <algorithm>
#include <array>
#include <bit>

#include "weights/formats/format_error.h"

namespace attn::formats {
namespace {

struct TypeRow {
  ElementType type;
  std::string_view descr;  // without byte order
};

constexpr std::array kTypes = {
    TypeRow{ElementType::kBool, "b1"},      TypeRow{ElementType::kUInt8, "u1"},
    TypeRow{ElementType::kInt8, "i1"},      TypeRow{ElementType::kInt16, "i2"},
    TypeRow{ElementType::kUInt16, "u2"},    TypeRow{ElementType::kFloat16, "f2"},
    TypeRow{ElementType::kInt32, "i4"},     TypeRow{ElementType::kUInt32, "u4"},
    TypeRow{ElementType::kFloat32, "f4"},   TypeRow{ElementType::kInt64, "i8"},
    TypeRow{ElementType::kUInt64, "u8"},    TypeRow{ElementType::kFloat64, "f8"},
    TypeRow{ElementType::kComplex64, "c8"}, TypeRow{ElementType::kComplex128, "c16"},
};

/// What NumPy calls the types that are refused, by the first letter.
std::string_view kind_of(char letter) {
  switch (letter) {
    case 'O':
      return ", a Python object";
    case 'S':
    case 'a':
      return ", byte strings";
    case 'U':
      return ", strings";
    case 'M':
    case 'm':
      return ", times";
    case 'V':
      return ", raw bytes, as which bfloat16 and float8 of ml_dtypes are saved";
    default:
      return "";
  }
}

constexpr bool kLittle = std::endian::native == std::endian::little;

}  // namespace

NpyType npy_type_named(std::string_view name) {
  NpyType type;
  std::string_view descr = name;
  if (!descr.empty() && std::string_view("<>|=").find(descr[0]) != descr.npos) {
    type.swapped = descr[0] == (kLittle ? '>' : '<');
    descr.remove_prefix(1);
  }
  const auto* row = std::ranges::find(kTypes, descr, &TypeRow::descr);
  if (row == kTypes.end()) {
    throw FormatError(".npy header: descr: expected a bool, integer, float or complex type, got " +
                      in_quotes(name) + std::string(kind_of(descr.empty() ? '\0' : descr[0])));
  }
  type.type = row->type;
  return type;
}

std::string npy_type_name(ElementType type) {
  const auto* row = std::ranges::find(kTypes, type, &TypeRow::type);
  if (row == kTypes.end()) {
    throw FormatError("expected a bool, integer, float or complex type of NumPy, got " +
                      std::string(name_of(type)));
  }
  const char order = number_bytes(type) == 1 ? '|' : kLittle ? '<' : '>';
  return std::string(1, order).append(row->descr);
}

}  // namespace attn::formats
