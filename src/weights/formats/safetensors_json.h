#pragma once

#include <string_view>

#include "weights/formats/safetensors.h"

namespace attn::formats {

/// What the JSON of a safetensors header says, in its own order. Kinds of values, names and nesting
/// are checked, the places of the tensors are not.
/// @throws FormatError
SafetensorsHeader read_safetensors_json(std::string_view json);

}  // namespace attn::formats
