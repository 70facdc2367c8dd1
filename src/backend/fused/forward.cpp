#include "backend/fused/forward.h"

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <array>

#include "backend/fused/problem.h"
#include "backend/fused/simd.h"
#include "backend/fused/threads.h"
#include "backend/refusal.h"
#include "backend/tangent.h"

namespace attn {
namespace {

/// Below so many operations, waking a second thread costs more than it saves.
constexpr double kWorthThreads = 1e6;

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

bool drops_out(const AttentionCall& call) { return call.dropout_p > 0.0; }

constexpr std::array kRefusals = {
    Refusal{is_elsewhere, "a tensor is not on the CPU"},
    Refusal{is_no_plain_memory, "a tensor is not dense, or is a wrapper of another"},
    Refusal{waits_for_negation, "a tensor's negation is put off (_neg_view)"},
    Refusal{needs_gradient, "a gradient is asked for, and it has no backward yet"},
    Refusal{needs_tangent, "a forward-mode gradient is asked for"},
    Refusal{is_traced, "a trace does not see into it"},
    Refusal{drops_out, "it has no dropout yet"},
};

/// What LibTorch's autocast makes of scaled_dot_product_attention's arguments.
at::Tensor cast_for_autocast(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble
             ? tensor
             : tensor.to(at::autocast::get_autocast_dtype(at::kCPU));
}

AttentionResult run(const AttentionCall& call) {
  const FusedProblem fused = fused_problem(call);
  const kernel::Problem& p = fused.problem;
  const kernel::Kernel& kernel = chosen_kernel();
  const kernel::Plan plan = kernel.plan(p);
  const double operations = 2.0 * static_cast<double>(p.batches * p.heads * p.queries) *
                            static_cast<double>(p.keys) *
                            static_cast<double>(p.head_dim + p.value_dim);
  const bool parallel = operations >= kWorthThreads;
  at::Tensor partials;
  if (plan.partials_bytes > 0) {
    partials = at::empty({plan.partials_bytes}, at::TensorOptions().dtype(at::kByte));
  }
  void* memory = partials.defined() ? partials.data_ptr() : nullptr;
  run_tasks(plan.tasks, plan.workspace_bytes, parallel,
            [&](int64_t task, void* workspace) { kernel.run(p, task, workspace, memory); });
  run_tasks(plan.merges, plan.workspace_bytes, parallel,
            [&](int64_t merge, void* workspace) { kernel.merge(p, merge, workspace, memory); });
  return fused.result;
}

}  // namespace

std::optional<std::string> fused_refusal(const AttentionCall& call) {
  return first_reason(kRefusals, call);
}

AttentionResult fused_attention(const AttentionCall& call) {
  if (!at::autocast::is_autocast_enabled(at::kCPU)) return run(call);
  AttentionCall cast = call;
  for (at::Tensor* tensor : {&cast.query, &cast.key, &cast.value}) {
    *tensor = cast_for_autocast(*tensor);
  }
  return run(cast);
}

}  // namespace attn
