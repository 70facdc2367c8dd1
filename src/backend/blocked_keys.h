#pragma once

#include <ATen/core/Tensor.h>
#include <attn/mask.h>

namespace attn {

/// Where the mask blocks, its bias aside: bool, broadcastable to [B, H, L, S]; undefined where it
/// blocks nothing.
at::Tensor blocked_keys(const Mask& mask, int64_t queries, int64_t keys, at::Device device);

}  // namespace attn
