#pragma once

#include <ATen/core/Tensor.h>

namespace attn {

/// Whether forward-mode differentiation carries a derivative along with the tensor. Operators that
/// have no forward derivative throw or, where autograd does not know them, lose it.
inline bool has_tangent(const at::Tensor& tensor) {
  constexpr uint64_t kLevel = 0;  // the only one that LibTorch has
  return tensor.defined() && tensor._fw_grad(kLevel).defined();
}

}  // namespace attn
