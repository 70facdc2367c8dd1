#include "backend/fused/problem.h"

#include <ATen/OpMathType.h>

#include "backend/causal_offset.h"
#include "backend/dropout.h"
#include "backend/masked_score.h"

namespace attn {
namespace {

kernel::Element element_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return kernel::Element::kFloat64;
    case at::kBFloat16:
      return kernel::Element::kBFloat16;
    case at::kHalf:
      return kernel::Element::kFloat16;
    default:
      return kernel::Element::kFloat32;
  }
}

/// [B|1, H|1, rows|1, columns|1] or [rows, columns], broadcast by strides of 0.
kernel::View view_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const int64_t rank = tensor.dim();
  const auto stride = [&](int64_t from_last) {
    const int64_t dim = rank - from_last;
    return dim < 0 || tensor.size(dim) == 1 ? 0 : tensor.stride(dim);
  };
  return {tensor.const_data_ptr(), stride(4), stride(3), stride(2), stride(1)};
}

int64_t batches_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 4 ? tensor.size(0) : 1;
}

/// The batch that the given ones broadcast to: 0 where one is 0.
int64_t broadcast(std::initializer_list<int64_t> batches) {
  int64_t result = 1;
  for (const int64_t batch : batches) {
    if (batch != 1) result = batch;
  }
  return result;
}

}  // namespace

int64_t logit_batches(const AttentionCall& call) {
  const Mask& mask = call.mask;
  return broadcast({call.query.size(0), call.key.size(0), batches_of(mask.attend_tensor()),
                    batches_of(mask.block_tensor()), batches_of(mask.bias_tensor())});
}

kernel::View operand_view(const at::Tensor& tensor) {
  kernel::View view = view_of(tensor);
  if (tensor.size(-1) == 1) view.column = 1;
  return view;
}

kernel::Problem fused_problem(const AttentionCall& call) {
  kernel::Problem p;
  const Mask& mask = call.mask;
  p.batches = broadcast({logit_batches(call), call.value.size(0)});
  p.heads = call.query.size(1);
  p.key_heads = call.key.size(1);
  p.queries = call.query.size(2);
  p.keys = call.key.size(2);
  p.head_dim = call.query.size(3);
  p.value_dim = call.value.size(3);
  p.element = element_of(call.query);
  p.query = operand_view(call.query);
  p.key = operand_view(call.key);
  p.value = operand_view(call.value);

  p.scale = 1.0 / call.divisor;
  if (call.logit_clip) {
    p.squash = kernel::Squash::kClip;
    p.squash_limit = *call.logit_clip;
  } else if (call.softcap) {
    p.squash = kernel::Squash::kSoftcap;
    p.squash_limit = *call.softcap;
  }

  const std::optional<int64_t> offset = causal_offset(call);
  p.causal = offset.has_value();
  p.causal_offset = offset.value_or(0);
  p.attend = view_of(mask.attend_tensor());
  p.block = view_of(mask.block_tensor());
  p.bias = view_of(mask.bias_tensor());
  if (mask.bias_tensor().defined()) p.bias_element = element_of(mask.bias_tensor());
  p.masked_score =
      saturated_masked_score(call.masked_score, at::toOpMathType(call.query.scalar_type()));
  p.nan_when_fully_masked = call.fully_masked == FullyMasked::kNaN;

  if (call.dropout_p > 0.0) {
    p.dropped = kernel_dropped(call.dropout_p);
    p.dropout_seed = call.dropout_seed.value();
  }
  return p;
}

}  // namespace attn
