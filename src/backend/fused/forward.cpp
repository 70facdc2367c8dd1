#include "backend/fused/forward.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include "backend/fused/problem.h"
#include "backend/fused/simd.h"
#include "backend/fused/threads.h"

namespace attn {
namespace {

/// Allocates the results that the call asks for, and says so in the problem.
AttentionResult allocate_results(const AttentionCall& call, kernel::Problem& p) {
  AttentionResult result;
  const at::TensorOptions options = call.query.options();
  p.output_row = p.heads * p.value_dim;
  p.output_head = p.value_dim;
  p.output_batch = p.queries * p.output_row;
  result.output = at::empty_strided({p.batches, p.heads, p.queries, p.value_dim},
                                    {p.output_batch, p.output_head, p.output_row, 1}, options);
  p.output = result.output.data_ptr();
  if (call.need_weights) {
    result.weights = at::empty({p.batches, p.heads, p.queries, p.keys}, options);
    p.weights = result.weights.data_ptr();
  }
  if (call.need_logsumexp) {
    result.logsumexp = at::empty({p.batches, p.heads, p.queries},
                                 options.dtype(at::toOpMathType(call.query.scalar_type())));
    p.logsumexp = result.logsumexp.data_ptr();
  }
  result.backend = Backend::kFused;
  return result;
}

}  // namespace

AttentionResult fused_forward(const AttentionCall& call) {
  kernel::Problem p = fused_problem(call);
  AttentionResult result = allocate_results(call, p);
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
  return result;
}

}  // namespace attn
