#include "backend/blocked_keys.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

namespace attn {
namespace {

/// True where the key comes later than the query may see: j > i + offset. [L, S]
at::Tensor later_keys(int64_t queries, int64_t keys, int64_t offset, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  const at::Tensor i = at::arange(queries, options).unsqueeze(-1);
  return at::arange(keys, options).gt(i + offset);
}

}  // namespace

at::Tensor blocked_keys(const Mask& mask, int64_t queries, int64_t keys, at::Device device) {
  at::Tensor blocked;
  const auto block = [&](const at::Tensor& more) {
    blocked = blocked.defined() ? blocked.logical_or(more) : more;
  };
  if (mask.is_causal()) block(later_keys(queries, keys, 0, device));
  if (mask.is_causal_bottom_right()) block(later_keys(queries, keys, keys - queries, device));
  if (mask.attend_tensor().defined()) block(mask.attend_tensor().logical_not());
  if (mask.block_tensor().defined()) block(mask.block_tensor());
  return blocked;
}

}  // namespace attn
