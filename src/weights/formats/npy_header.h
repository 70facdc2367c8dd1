#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/formats/element_type.h"

namespace attn::formats {

/// Bytes before the text of a header in version 2 and 3; version 1 has two fewer.
inline constexpr std::size_t kNpyStartBytes = 12;

/// What a .npy file says of its array.
struct NpyHeader {
  ElementType type = ElementType::kFloat32;
  /// Of the other byte order than this machine.
  bool swapped = false;
  bool fortran_order = false;
  std::vector<std::uint64_t> sizes;
};

/// Bytes before the array, as the first `kNpyStartBytes` bytes of a file say, or all of a shorter
/// one; kMaxNpyHeader and these at most.
/// @throws FormatError
std::size_t npy_header_bytes(std::string_view start);

/// Reads the bytes before the array: magic string, version, length, and the text of a Python dict
/// with the keys descr, fortran_order and shape.
/// @throws FormatError naming the key and the rule
NpyHeader parse_npy_header(std::string_view header);

/// The bytes before a C-ordered array, as NumPy writes them; a multiple of 64.
/// @throws FormatError for a type that NumPy lacks
std::string npy_header_text(ElementType type, const std::vector<std::uint64_t>& sizes);

}  // namespace attn::formats
