#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/formats/element_type.h"

namespace attn::formats {

/// A weight as the JSON of a .pt2 archive lists it.
struct Pt2Weight {
  std::string name;
  /// The record with its bytes, inside the folder of the weights.
  std::string path;
  /// The record is a file of torch.save instead.
  bool pickled = false;
  ElementType type = ElementType::kFloat32;
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;
};

/// Reads a list of weights, or of constants, in its order. What the list says beyond these fields is
/// not looked at.
/// @throws FormatError naming the weight
std::vector<Pt2Weight> read_pt2_config(std::string_view json);

}  // namespace attn::formats
