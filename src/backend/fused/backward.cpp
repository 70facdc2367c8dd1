#include "backend/fused/backward.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "backend/fused/problem.h"
#include "backend/fused/simd.h"
#include "backend/fused/threads.h"

namespace attn {
namespace {

/// Memory for a gradient of [B, H, rows, columns]: dense, columns innermost, the other dimensions in
/// the order in which those of `like` lie in memory. Broadcast ones lie outermost.
at::Tensor empty_in_order_of(const at::Tensor& like) {
  std::array<int64_t, 4> order = {0, 1, 2, 3};
  const auto distance = [&](int64_t dim) {
    return like.stride(dim) == 0 ? std::numeric_limits<int64_t>::max() : like.stride(dim);
  };
  std::stable_sort(order.begin(), order.end() - 1,
                   [&](int64_t a, int64_t b) { return distance(a) > distance(b); });
  at::DimVector strides(4);
  int64_t stride = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[static_cast<size_t>(*dim)] = stride;
    stride *= std::max<int64_t>(like.size(*dim), 1);
  }
  return at::empty_strided(like.sizes(), strides, like.options());
}

kernel::GradientView gradient_view(const at::Tensor& gradient) {
  return {gradient.data_ptr(), gradient.stride(0), gradient.stride(1), gradient.stride(2)};
}

/// Of [L, S] or [B|1, H|1, L|1, S|1].
kernel::BiasGradient bias_gradient(const at::Tensor& gradient) {
  const int64_t rank = gradient.dim();
  const auto size = [&](int64_t from_last) {
    return from_last > rank ? 1 : gradient.size(rank - from_last);
  };
  return {gradient.data_ptr(), size(4), size(3), size(2), size(1)};
}

/// A gradient as the kernel reads it: dense on the CPU, of any strides. One that autograd left out is
/// zero.
at::Tensor plain_gradient(const at::Tensor& gradient, const at::Tensor& of) {
  if (!gradient.defined()) return at::zeros({1}, of.options()).expand(of.sizes());
  if (gradient._is_zerotensor()) return gradient.clone();
  return (gradient.layout() == at::kStrided ? gradient : gradient.to_dense()).resolve_neg();
}

}  // namespace

GradientTensors fused_backward(const AttentionCall& call, const ForwardPass& pass,
                               const at::Tensor& output_gradient,
                               const at::Tensor& logsumexp_gradient, const WhichGradients& wanted) {
  const kernel::Problem p = fused_problem(call);
  const bool is_empty = p.batches == 0 || p.heads == 0 || p.queries == 0 || p.keys == 0;
  // The values do not reach the log-sum-exp.
  const bool reaches_values = output_gradient.defined();
  const std::array of = {&call.query, &call.key, &call.value, &call.mask.bias_tensor()};
  GradientTensors gradients;
  for (size_t i = 0; i < kDifferentiables; ++i) {
    if (!wanted[i]) continue;
    const bool is_zero = is_empty || (i == kValue && !reaches_values);
    gradients[i] = is_zero      ? at::zeros(of[i]->sizes(), of[i]->options())
                   : i == kBias ? at::empty(of[i]->sizes(), of[i]->options())
                                : empty_in_order_of(*of[i]);
  }
  if (is_empty) return gradients;

  kernel::Gradients g;
  const at::Tensor output_part = plain_gradient(output_gradient, pass.output);
  g.output = operand_view(pass.output);
  g.logsumexp = pass.logsumexp.const_data_ptr();
  g.logsumexp_rest = pass.logsumexp_rest.const_data_ptr();
  g.output_gradient = operand_view(output_part);
  at::Tensor logsumexp_part;
  if (logsumexp_gradient.defined()) {
    logsumexp_part = plain_gradient(logsumexp_gradient, pass.logsumexp).contiguous();
    g.logsumexp_gradient = logsumexp_part.const_data_ptr();
  }
  if (wanted[kQuery]) g.query = gradient_view(gradients[kQuery]);
  if (wanted[kKey]) g.key = gradient_view(gradients[kKey]);
  if (wanted[kValue] && reaches_values) g.value = gradient_view(gradients[kValue]);
  if (wanted[kBias]) g.bias = bias_gradient(gradients[kBias]);

  const kernel::Kernel& kernel = chosen_kernel();
  // Five products: two for the logits and the weights' gradients, one for each of query, key and value.
  const double operations = 2.0 * static_cast<double>(p.batches * p.heads * p.queries) *
                            static_cast<double>(p.keys) *
                            static_cast<double>(3 * p.head_dim + 2 * p.value_dim);
  run_plan(
      kernel.plan_gradients(p, g), operations,
      [&](int64_t task, void* workspace, void* partials) {
        kernel.run_gradients(p, g, task, workspace, partials);
      },
      [&](int64_t merge, void* workspace, void* partials) {
        kernel.merge_gradients(p, g, merge, workspace, partials);
      });
  return gradients;
}

}  // namespace attn
