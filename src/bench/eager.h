#pragma once

#include <ATen/core/Tensor.h>

#include "bench/rows.h"

namespace attn::bench {

/// Attention as one writes it in eager Python: matmul, softmax, matmul.
class EagerAttention {
 public:
  /// @param mask that of the row: bool, true attends, or additive; undefined for none and causal
  EagerAttention(const Row& row, const at::Tensor& mask);

  /// [B, H, L, D] · [B, Hk, S, D] · [B, Hk, S, Dv] → [B, H, L, Dv]
  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

 private:
  at::Tensor one_group(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const;

  Row row_;
  double scale_;
  at::Tensor bias_;
  at::Tensor blocked_;
};

}  // namespace attn::bench
