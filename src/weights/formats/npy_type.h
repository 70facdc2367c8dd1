#pragma once

#include <string>
#include <string_view>

#include "weights/formats/element_type.h"

namespace attn::formats {

struct NpyType {
  ElementType type = ElementType::kFloat32;
  /// Of the other byte order than this machine, which bytes do not have.
  bool swapped = false;
};

/// The type that NumPy calls so, e.g. "<f4".
/// @throws FormatError for the types of NumPy that no tensor has, saying what they are
NpyType npy_type_named(std::string_view name);

/// NumPy's name, with this machine's byte order.
/// @throws FormatError for a type that NumPy lacks
std::string npy_type_name(ElementType type);

}  // namespace attn::formats
