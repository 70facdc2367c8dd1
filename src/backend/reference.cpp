#include "backend/reference.h"

#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <algorithm>

#include "backend/blocked_keys.h"
#include "backend/dropout.h"
#include "backend/masked_score.h"

namespace attn {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// [B|1, H|1, L|1, S|1] → [H|1, B|1, L|1, S|1]; a 2-D or undefined tensor has no such axes.
at::Tensor heads_first(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 4 ? tensor.transpose(0, 1) : tensor;
}

at::Tensor repeat_heads(const at::Tensor& tensor, int64_t heads) {
  return tensor.size(1) == heads ? tensor : tensor.repeat_interleave(heads / tensor.size(1), 1);
}

/// Python's dropout of the weights, or the kernel's where the call or a test asks for it.
at::Tensor drop_out(const at::Tensor& weights, const at::Tensor& value, bool swap,
                    const AttentionCall& call) {
  const std::optional<uint64_t> seed = kernel_seed_for_reference(call);
  if (!seed) return at::dropout(weights, call.dropout_p, /*train=*/true);
  const auto batch_first = [&](const at::Tensor& x) { return swap ? heads_first(x) : x; };
  const int64_t batches = std::max(batch_first(weights).size(0), batch_first(value).size(0));
  return batch_first(drop_as_the_kernel(batch_first(weights), batches, call.dropout_p, *seed));
}

}  // namespace

at::Tensor reference_logits(const at::Tensor& query, const at::Tensor& key, double divisor,
                            std::optional<double> logit_clip, Spelling spelling) {
  const at::Tensor scores = spelling == Spelling::kEinsum
                                ? at::einsum("bhld,bhsd->bhls", {query, key})
                                : at::matmul(query, key.transpose(-2, -1));
  // Not in place: einsum may return a view, and its gradient would take another path.
  const at::Tensor logits = scores.div(divisor);
  return logit_clip ? logits.tanh().mul(*logit_clip) : logits;
}

AttentionResult reference_attention(const AttentionCall& call) {
  at::Tensor query = call.query;                               // [B, H, L, D]
  at::Tensor key = repeat_heads(call.key, query.size(1));      // [B, H, S, D]
  at::Tensor value = repeat_heads(call.value, query.size(1));  // [B, H, S, Dv]
  const bool swap = call.spelling == Spelling::kMatmulHeadsFirst;
  if (swap) {
    query = heads_first(query), key = heads_first(key), value = heads_first(value);
  }

  at::Tensor logits =
      reference_logits(query, key, call.divisor, call.logit_clip, call.spelling);  // [B, H, L, S]
  if (call.softcap) logits = logits.div(*call.softcap).tanh().mul(*call.softcap);
  at::Tensor bias = call.mask.bias_tensor();
  if (bias.defined()) logits = logits + (swap ? heads_first(bias) : bias).to(logits.scalar_type());
  at::Tensor blocked = blocked_keys(call.mask, logits.size(-2), logits.size(-1), logits.device());
  if (blocked.defined()) {
    if (swap) blocked = heads_first(blocked);
    const double score = saturated_masked_score(call.masked_score, logits.scalar_type());
    // The batch of the mask may be that of value alone.
    logits = at::is_expandable_to(blocked.sizes(), logits.sizes())
                 ? logits.masked_fill_(blocked, score)
                 : logits.masked_fill(blocked, score);
  }

  // A row of nothing but −∞ would make NaN in the weights and in every gradient: it is taken out
  // and put back as zeros.
  at::Tensor dead;  // [B, H, L, 1]
  if (call.fully_masked == FullyMasked::kZero && !call.mask.is_none()) {
    dead = logits.eq(kMinusInfinity).all(-1, /*keepdim=*/true);
    logits = logits.masked_fill(dead, 0.0);
  }

  AttentionResult result;
  if (call.need_logsumexp) {
    result.logsumexp =
        at::logsumexp(logits.to(at::toOpMathType(logits.scalar_type())), -1);  // [B, H, L]
    if (dead.defined())
      result.logsumexp = result.logsumexp.masked_fill(dead.squeeze(-1), kMinusInfinity);
  }
  at::Tensor weights = at::softmax(logits, -1);
  if (dead.defined()) weights = weights.masked_fill(dead, 0.0);
  if (call.dropout_p > 0.0) weights = drop_out(weights, value, swap, call);
  result.output = call.spelling == Spelling::kEinsum
                      ? at::einsum("bhls,bhsd->bhld", {weights, value})
                      : at::matmul(weights, value);  // [B, H, L, Dv]
  if (call.need_weights) result.weights = weights;

  if (swap) {
    result.output = heads_first(result.output);
    result.weights = heads_first(result.weights);
    if (call.need_logsumexp) result.logsumexp = result.logsumexp.transpose(0, 1);
  }
  result.backend = Backend::kReference;
  return result;
}

}  // namespace attn
