#include "functional/heads.h"

namespace attn {

at::Tensor split_heads(const at::Tensor& tensor, int64_t heads) {
  const int64_t head_dim = tensor.size(2) / heads;
  return tensor
      .unflatten(-1, {heads, head_dim})  // [B, L, H, D]
      .transpose(1, 2);                  // [B, H, L, D]
}

at::Tensor merge_heads(const at::Tensor& tensor) {
  return tensor
      .transpose(1, 2)                                                              // [B, L, H, D]
      .reshape({tensor.size(0), tensor.size(2), tensor.size(1) * tensor.size(3)});  // [B, L, H·D]
}

}  // namespace attn
