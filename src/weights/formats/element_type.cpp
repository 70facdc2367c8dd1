#include "weights/formats/element_type.h"

#include <algorithm>
#include <array>

namespace attn::formats {
namespace {

struct Row {
  ElementType type;
  std::uint64_t bits;
  std::string_view name;
};

constexpr std::array kRows = {
    Row{ElementType::kBool, 8, "bool"},
    Row{ElementType::kFloat4E2M1, 4, "float4_e2m1fn"},
    Row{ElementType::kFloat6E2M3, 6, "float6_e2m3fn"},
    Row{ElementType::kFloat6E3M2, 6, "float6_e3m2fn"},
    Row{ElementType::kUInt8, 8, "uint8"},
    Row{ElementType::kInt8, 8, "int8"},
    Row{ElementType::kFloat8E5M2, 8, "float8_e5m2"},
    Row{ElementType::kFloat8E4M3, 8, "float8_e4m3fn"},
    Row{ElementType::kFloat8E8M0, 8, "float8_e8m0fnu"},
    Row{ElementType::kFloat8E4M3Fnuz, 8, "float8_e4m3fnuz"},
    Row{ElementType::kFloat8E5M2Fnuz, 8, "float8_e5m2fnuz"},
    Row{ElementType::kInt16, 16, "int16"},
    Row{ElementType::kUInt16, 16, "uint16"},
    Row{ElementType::kFloat16, 16, "float16"},
    Row{ElementType::kBFloat16, 16, "bfloat16"},
    Row{ElementType::kInt32, 32, "int32"},
    Row{ElementType::kUInt32, 32, "uint32"},
    Row{ElementType::kFloat32, 32, "float32"},
    Row{ElementType::kComplex32, 32, "complex32"},
    Row{ElementType::kInt64, 64, "int64"},
    Row{ElementType::kUInt64, 64, "uint64"},
    Row{ElementType::kFloat64, 64, "float64"},
    Row{ElementType::kComplex64, 64, "complex64"},
    Row{ElementType::kComplex128, 128, "complex128"},
};

const Row& row_of(ElementType type) { return *std::ranges::find(kRows, type, &Row::type); }

bool is_complex(ElementType type) {
  return type == ElementType::kComplex32 || type == ElementType::kComplex64 ||
         type == ElementType::kComplex128;
}

}  // namespace

std::uint64_t bits_of(ElementType type) { return row_of(type).bits; }

std::size_t number_bytes(ElementType type) {
  const std::uint64_t bytes = bits_of(type) / (is_complex(type) ? 16 : 8);
  return std::max<std::uint64_t>(1, bytes);
}

std::string_view name_of(ElementType type) { return row_of(type).name; }

std::optional<ElementType> element_type_named(std::string_view name) {
  const auto* row = std::ranges::find(kRows, name, &Row::name);
  if (row == kRows.end()) return std::nullopt;
  return row->type;
}

}  // namespace attn::formats
