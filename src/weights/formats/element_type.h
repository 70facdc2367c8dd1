#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace attn::formats {

/// Element types of all formats together; none of them has all.
enum class ElementType {
  kBool,
  kFloat4E2M1,
  kFloat6E2M3,
  kFloat6E3M2,
  kUInt8,
  kInt8,
  kFloat8E5M2,
  kFloat8E4M3,
  kFloat8E8M0,
  kFloat8E4M3Fnuz,
  kFloat8E5M2Fnuz,
  kInt16,
  kUInt16,
  kFloat16,
  kBFloat16,
  kInt32,
  kUInt32,
  kFloat32,
  kComplex32,
  kInt64,
  kUInt64,
  kFloat64,
  kComplex64,
  kComplex128,
};

/// Bits of an element: a multiple of 8, except for the types of 4 and 6 bits.
std::uint64_t bits_of(ElementType type);
/// Bytes of one number, which byte order concerns: half an element for complex types; 1 below a byte.
std::size_t number_bytes(ElementType type);
/// LibTorch's name, e.g. "bfloat16"; for the types that it lacks, of the same kind: "float6_e2m3fn".
std::string_view name_of(ElementType type);
/// The type of that name.
std::optional<ElementType> element_type_named(std::string_view name);

}  // namespace attn::formats
