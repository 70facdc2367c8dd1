#include "backend/fused/forward.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "backend/fused/problem.h"
#include "backend/fused/simd.h"
#include "backend/fused/threads.h"

namespace attn {
namespace {

/// Room for an output [B, H, L, Dv].
at::Tensor allocate_output(kernel::Problem& p, const at::TensorOptions& options) {
  p.output_row = p.heads * p.value_dim;
  p.output_head = p.value_dim;
  p.output_batch = p.queries * p.output_row;
  // Not a view, which autograd would not let be changed in place.
  const at::Tensor output =
      at::empty_strided({p.batches, p.heads, p.queries, p.value_dim},
                        {p.output_batch, p.output_head, p.output_row, 1}, options);
  p.output = output.data_ptr();
  return output;
}

/// Room for one number a query, [B, H, L].
at::Tensor allocate_rows(const kernel::Problem& p, const at::TensorOptions& options) {
  return at::empty({p.batches, p.heads, p.queries},
                   options.dtype(at::toOpMathType(c10::typeMetaToScalarType(options.dtype()))));
}

void run_kernel(const kernel::Problem& p) {
  const kernel::Kernel& kernel = chosen_kernel();
  const double operations = 2.0 * static_cast<double>(p.batches * p.heads * p.queries) *
                            static_cast<double>(p.keys) *
                            static_cast<double>(p.head_dim + p.value_dim);
  run_plan(
      kernel.plan(p), operations,
      [&](int64_t task, void* workspace, void* partials) {
        kernel.run(p, task, workspace, partials);
      },
      [&](int64_t merge, void* workspace, void* partials) {
        kernel.merge(p, merge, workspace, partials);
      });
}

}  // namespace

AttentionResult fused_forward(const AttentionCall& call) {
  const at::TensorOptions options = call.query.options();
  kernel::Problem p = fused_problem(call);
  AttentionResult result;
  result.output = allocate_output(p, options);
  if (call.need_weights) {
    result.weights = at::empty({p.batches, p.heads, p.queries, p.keys}, options);
    p.weights = result.weights.data_ptr();
  }
  if (call.need_logsumexp) {
    result.logsumexp = allocate_rows(p, options);
    p.logsumexp = result.logsumexp.data_ptr();
  }
  result.backend = Backend::kFused;
  run_kernel(p);
  return result;
}

ForwardPass fused_forward_pass(const AttentionCall& call) {
  const at::TensorOptions options = call.query.options();
  kernel::Problem p = fused_problem(call);
  ForwardPass pass{allocate_output(p, options), allocate_rows(p, options),
                   allocate_rows(p, options)};
  p.logsumexp = pass.logsumexp.data_ptr();
  p.logsumexp_rest = pass.logsumexp_rest.data_ptr();
  run_kernel(p);
  return pass;
}

}  // namespace attn
