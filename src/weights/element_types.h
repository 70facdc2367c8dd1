#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "weights/formats/element_type.h"

namespace attn {

/// LibTorch's type; nothing for those that it lacks. Its float4 is a pair of numbers, see
/// `make_tensors`.
std::optional<at::ScalarType> scalar_type(formats::ElementType type);
/// The type of files; nothing for quantized and internal types.
std::optional<formats::ElementType> element_type(at::ScalarType type);

}  // namespace attn
