#pragma once

#include <ATen/core/Tensor.h>

namespace attn {

/// [B, L, H·D] → [B, H, L, D], a view.
at::Tensor split_heads(const at::Tensor& tensor, int64_t heads);

/// [B, H, L, D] → [B, L, H·D].
at::Tensor merge_heads(const at::Tensor& tensor);

}  // namespace attn
