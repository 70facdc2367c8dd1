#include "bench/eager.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <cmath>

namespace attn::bench {

EagerAttention::EagerAttention(const Row& row, const at::Tensor& mask)
    : row_(row), scale_(1.0 / std::sqrt(static_cast<double>(row.D))) {
  if (row.mask == MaskKind::kCausal) {
    blocked_ = at::ones({row.L, row.S}, at::kBool).triu(1);
  } else if (mask.defined() && mask.scalar_type() == at::kBool) {
    blocked_ = mask.logical_not();
  } else {
    bias_ = mask;
  }
}

at::Tensor EagerAttention::operator()(const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v) const {
  if (row_.Hk == row_.H) return one_group(q, k, v);
  // The queries of a group as rows of one matrix: K and V are neither repeated nor read twice.
  const at::Tensor rows = q.reshape({row_.B, row_.Hk, row_.H / row_.Hk * row_.L, row_.D});
  return one_group(rows, k, v).view({row_.B, row_.H, row_.L, row_.Dv});
}

at::Tensor EagerAttention::one_group(const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v) const {
  at::Tensor logits = at::matmul(q, k.transpose(-2, -1)) * scale_;  // [B, H, L, S]
  if (row_.logit_clip) logits = logits.tanh() * *row_.logit_clip;
  if (bias_.defined()) logits = logits + bias_;
  if (blocked_.defined()) logits = logits.masked_fill(blocked_, -INFINITY);
  at::Tensor weights = at::softmax(logits, -1);
  if (row_.dropout_p > 0.0) weights = at::dropout(weights, row_.dropout_p, /*train=*/true);
  return at::matmul(weights, v);  // [B, H, L, Dv]
}

}  // namespace attn::bench
