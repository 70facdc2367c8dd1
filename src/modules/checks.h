#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

/// Refusals that the modules share, on top of functional/checks.h.
namespace attn {

/// An input of a module: [B, length, features] with the dtype and device of the module's
/// parameters.
void check_sequence(std::string_view module, std::string_view name, const at::Tensor& tensor,
                    int64_t features, std::string_view layout, const at::Tensor& parameter);

}  // namespace attn
