#include "backend/fused/autograd.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "backend/fused/backward.h"
#include "backend/fused/forward.h"
#include "backend/fused/problem.h"
#include "backend/reference.h"

namespace attn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A mask of other tensors, some of which may be undefined.
Mask with_tensors(const Mask& mask, const at::Tensor& attend, const at::Tensor& block,
                  const at::Tensor& bias) {
  Mask result = Mask::none();
  if (mask.is_causal()) result = result & Mask::causal();
  if (mask.is_causal_bottom_right()) result = result & Mask::causal_bottom_right();
  if (attend.defined()) result = result & Mask::attend(attend);
  if (block.defined()) result = result & Mask::block(block);
  if (bias.defined()) result = result & Mask::bias(bias);
  return result;
}

/// What of a call autograd keeps beside its tensors.
struct SavedCall : torch::CustomClassHolder {
  explicit SavedCall(const AttentionCall& original) : call(original) {
    for (at::Tensor* tensor : {&call.query, &call.key, &call.value}) *tensor = at::Tensor();
    call.mask = with_tensors(original.mask, {}, {}, {});
  }
  AttentionCall call;
};

/// The gradients by the reference's operations, which autograd can differentiate again.
GradientTensors gradients_by_reference(AttentionCall call, const at::Tensor& output_gradient,
                                       const at::Tensor& logsumexp_gradient,
                                       const WhichGradients& wanted) {
  const bool create_graph = at::GradMode::is_enabled();
  const at::AutoGradMode record(true);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  // The same tensor may be query, key and value: an alias of each has a gradient of its own.
  const Mask& mask = call.mask;
  GradientTensors of = {at::alias(call.query), at::alias(call.key), at::alias(call.value)};
  if (mask.bias_tensor().defined()) of[kBias] = at::alias(mask.bias_tensor());
  call.query = of[kQuery];
  call.key = of[kKey];
  call.value = of[kValue];
  call.mask = with_tensors(mask, mask.attend_tensor(), mask.block_tensor(), of[kBias]);
  call.need_logsumexp = logsumexp_gradient.defined();

  const AttentionResult result = reference_attention(call);
  variable_list roots, root_gradients, inputs;
  const auto add_root = [&](const at::Tensor& root, const at::Tensor& gradient) {
    if (!gradient.defined() || !root.requires_grad()) return;
    roots.push_back(root);
    root_gradients.push_back(gradient);
  };
  add_root(result.output, output_gradient);
  add_root(result.logsumexp, logsumexp_gradient);
  for (size_t i = 0; i < kDifferentiables; ++i) {
    if (wanted[i]) inputs.push_back(of[i]);
  }
  // The values alone do not reach the log-sum-exp: there may be no root.
  const variable_list found =
      roots.empty() ? variable_list(inputs.size())
                    : torch::autograd::grad(roots, inputs, root_gradients,
                                            /*retain_graph=*/create_graph, create_graph,
                                            /*allow_unused=*/true);
  GradientTensors gradients;
  auto next = found.begin();
  for (size_t i = 0; i < kDifferentiables; ++i) {
    if (!wanted[i]) continue;
    gradients[i] = next->defined() ? *next : at::zeros_like(of[i]);
    ++next;
  }
  return gradients;
}

struct FusedAttention : torch::autograd::Function<FusedAttention> {
  static variable_list forward(AutogradContext* context, const at::Tensor& query,
                               const at::Tensor& key, const at::Tensor& value,
                               const std::optional<at::Tensor>& bias, const AttentionCall& call) {
    const ForwardPass pass = fused_forward_pass(call);
    context->set_materialize_grads(false);
    if (!call.need_logsumexp) context->mark_non_differentiable({pass.logsumexp});
    context->save_for_backward({query, key, value, call.mask.attend_tensor(),
                                call.mask.block_tensor(), bias.value_or(at::Tensor()), pass.output,
                                pass.logsumexp, pass.logsumexp_rest});
    context->saved_data["call"] = at::IValue::make_capsule(c10::make_intrusive<SavedCall>(call));
    return {pass.output, pass.logsumexp};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    AttentionCall call =
        c10::static_intrusive_pointer_cast<SavedCall>(context->saved_data["call"].toCapsule())
            ->call;
    call.query = saved[0];
    call.key = saved[1];
    call.value = saved[2];
    call.mask = with_tensors(call.mask, saved[3], saved[4], saved[5]);
    const ForwardPass pass{saved[6], saved[7], saved[8]};
    const at::Tensor& output_gradient = gradients[0];
    const at::Tensor& logsumexp_gradient = gradients[1];

    WhichGradients wanted = {};
    for (size_t i = 0; i < kDifferentiables; ++i) {
      wanted[i] = (i != kBias || saved[5].defined()) && context->needs_input_grad(i);
    }
    if (!output_gradient.defined() && !logsumexp_gradient.defined()) wanted = {};
    if (wanted == WhichGradients{}) return variable_list(kDifferentiables + 1);
    const auto is_wrapper = [](const at::Tensor& gradient) {
      return gradient.defined() && at::isTensorSubclassLike(gradient);
    };
    const bool differentiate_again =
        at::GradMode::is_enabled() || is_wrapper(output_gradient) || is_wrapper(logsumexp_gradient);
    GradientTensors found =
        differentiate_again
            ? gradients_by_reference(call, output_gradient, logsumexp_gradient, wanted)
            : fused_backward(call, pass, output_gradient, logsumexp_gradient, wanted);
    return {found[kQuery], found[kKey], found[kValue], found[kBias], at::Tensor()};
  }
};

}  // namespace

AttentionResult fused_attention_with_gradients(const AttentionCall& call) {
  const int64_t batches = fused_problem(call).batches;
  const auto expanded = [&](const at::Tensor& tensor) {  // so that autograd sums over the batches
    return tensor.size(0) == batches ? tensor : tensor.expand({batches, -1, -1, -1});
  };
  const at::Tensor& bias = call.mask.bias_tensor();
  const variable_list found =
      FusedAttention::apply(expanded(call.query), expanded(call.key), expanded(call.value),
                            bias.defined() ? std::optional(bias) : std::nullopt, call);
  AttentionResult result;
  result.output = found[0];
  if (call.need_logsumexp) result.logsumexp = found[1];
  result.backend = Backend::kFused;
  return result;
}

}  // namespace attn
