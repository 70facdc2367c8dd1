#include "backend/fused/problem.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>

#include "backend/causal_offset.h"
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

/// The same for an operand, whose columns count as adjacent where there is but one.
kernel::View operand_of(const at::Tensor& tensor) {
  kernel::View view = view_of(tensor);
  if (tensor.size(-1) == 1) view.column = 1;
  return view;
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

FusedProblem fused_problem(const AttentionCall& call) {
  FusedProblem fused;
  kernel::Problem& p = fused.problem;
  const Mask& mask = call.mask;
  const int64_t logit_batches =
      broadcast({call.query.size(0), call.key.size(0), batches_of(mask.attend_tensor()),
                 batches_of(mask.block_tensor()), batches_of(mask.bias_tensor())});
  p.batches = broadcast({logit_batches, call.value.size(0)});
  p.heads = call.query.size(1);
  p.key_heads = call.key.size(1);
  p.queries = call.query.size(2);
  p.keys = call.key.size(2);
  p.head_dim = call.query.size(3);
  p.value_dim = call.value.size(3);
  p.element = element_of(call.query);
  p.query = operand_of(call.query);
  p.key = operand_of(call.key);
  p.value = operand_of(call.value);

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

  AttentionResult& result = fused.result;
  const at::TensorOptions options = call.query.options();
  result.output = at::empty({p.batches, p.queries, p.heads, p.value_dim}, options).transpose(1, 2);
  p.output = result.output.data_ptr();
  p.output_batch = result.output.stride(0);
  p.output_head = result.output.stride(1);
  p.output_row = result.output.stride(2);
  // The kernel writes these for every batch; where batches differ in value alone, one is enough.
  if (call.need_weights) {
    result.weights = at::empty({p.batches, p.heads, p.queries, p.keys}, options);
    p.weights = result.weights.data_ptr();
    result.weights = result.weights.narrow(0, 0, logit_batches);
  }
  if (call.need_logsumexp) {
    result.logsumexp = at::empty({p.batches, p.heads, p.queries},
                                 options.dtype(at::toOpMathType(call.query.scalar_type())));
    p.logsumexp = result.logsumexp.data_ptr();
    result.logsumexp = result.logsumexp.narrow(0, 0, logit_batches);
  }
  result.backend = Backend::kFused;
  return fused;
}

}  // namespace attn
