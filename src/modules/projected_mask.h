#pragma once

#include <attn/mask.h>

#include <string_view>

namespace attn {

/// The sizes that a mask of `ProjectedMultiheadAttention` and `PreprojectedMultiheadAttention`
/// broadcasts to.
struct LogitSizes {
  int64_t batch;
  int64_t heads;
  int64_t queries;
  int64_t keys;
};

/// What a 2-D mask means.
enum class TwoDimensions {
  /// [B|1, S]: keys per batch.
  kKeysPerBatch,
  kRefused,
};

/// A raw mask, true blocks, of 0, 1 or 3 dimensions or heads first [H|1, B|1, L|1, S|1], as a
/// `Mask` [B|1, H|1, L|1, S|1]. The rank decides what the axes are, never the sizes. Throws
/// `c10::Error` for everything else.
Mask projected_mask(std::string_view module, const at::Tensor& mask, const at::Tensor& query,
                    LogitSizes sizes, TwoDimensions two_dimensions);

}  // namespace attn
