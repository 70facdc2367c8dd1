#include "backend/fused/attention.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <array>

#include "backend/dropout.h"
#include "backend/fused/autograd.h"
#include "backend/fused/forward.h"
#include "backend/fused/problem.h"
#include "backend/refusal.h"
#include "backend/tangent.h"

namespace attn {
namespace {

/// Whether a tensor of the call is of some kind. Asked several times a call: it copies no tensor.
template <class Is>
bool any_tensor(const AttentionCall& call, Is is) {
  const std::array tensors = {&call.query,
                              &call.key,
                              &call.value,
                              &call.mask.attend_tensor(),
                              &call.mask.block_tensor(),
                              &call.mask.bias_tensor()};
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor* tensor) { return tensor->defined() && is(*tensor); });
}

bool is_elsewhere(const AttentionCall& call) {
  return any_tensor(call, [](const at::Tensor& tensor) { return !tensor.is_cpu(); });
}

bool is_no_plain_memory(const AttentionCall& call) {
  return any_tensor(call, [](const at::Tensor& tensor) {
    return tensor.layout() != at::kStrided || at::isTensorSubclassLike(tensor);
  });
}

bool waits_for_negation(const AttentionCall& call) {
  return any_tensor(call, [](const at::Tensor& tensor) { return tensor.is_neg(); });
}

bool needs_gradient(const AttentionCall& call) {
  return at::GradMode::is_enabled() &&
         any_tensor(call, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

bool needs_tangent(const AttentionCall& call) { return any_tensor(call, has_tangent); }

bool is_traced(const AttentionCall&) { return torch::jit::tracer::isTracing(); }

bool returns_weights_to_differentiate(const AttentionCall& call) {
  return call.need_weights && needs_gradient(call);
}

constexpr std::array kRefusals = {
    Refusal{is_elsewhere, "a tensor is not on the CPU"},
    Refusal{is_no_plain_memory, "a tensor is not dense, or is a wrapper of another"},
    Refusal{waits_for_negation, "a tensor's negation is put off (_neg_view)"},
    Refusal{needs_tangent, "a forward-mode gradient is asked for"},
    Refusal{is_traced, "a trace does not see into it"},
    Refusal{returns_weights_to_differentiate,
            "it has no gradient through returned weights (need_weights)"},
};

/// What LibTorch's autocast makes of scaled_dot_product_attention's arguments.
at::Tensor cast_for_autocast(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble
             ? tensor
             : tensor.to(at::autocast::get_autocast_dtype(at::kCPU));
}

/// A call of plain dtypes, with a seed where it drops weights.
AttentionResult run(const AttentionCall& call) {
  AttentionResult result =
      needs_gradient(call) ? fused_attention_with_gradients(call) : fused_forward(call);
  // The kernel writes these for every batch; where batches differ in value alone, one is enough.
  const auto narrow = [batches = logit_batches(call)](at::Tensor& tensor) {
    if (tensor.defined() && tensor.size(0) != batches) tensor = tensor.narrow(0, 0, batches);
  };
  narrow(result.logsumexp);
  if (call.dropout_p == 0.0) narrow(result.weights);
  return result;
}

}  // namespace

std::optional<std::string> fused_refusal(const AttentionCall& call) {
  return first_reason(kRefusals, call);
}

AttentionResult fused_attention(const AttentionCall& call) {
  const bool casts = at::autocast::is_autocast_enabled(at::kCPU);
  const bool draws = call.dropout_p > 0.0 && !call.dropout_seed;
  if (!casts && !draws) return run(call);
  AttentionCall prepared = call;
  if (draws) prepared.dropout_seed = draw_dropout_seed();
  if (casts) {
    for (at::Tensor* tensor : {&prepared.query, &prepared.key, &prepared.value}) {
      *tensor = cast_for_autocast(*tensor);
    }
  }
  return run(prepared);
}

}  // namespace attn
