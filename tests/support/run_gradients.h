#pragma once

#include <kernel/attention.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/elements.h"
#include "support/gradient_request.h"
#include "support/guarded_memory.h"
#include "support/output_rows.h"
#include "support/run_kernel.h"

namespace attn::testing {

/// One gradient as a kernel wrote it, in row-major order; empty if it was not asked for.
struct WrittenGradient {
  WrittenGradient() = default;
  WrittenGradient(kernel::Element element, std::vector<std::byte> bytes)
      : bits(std::move(bytes)),
        numbers(numbers_of(element, bits.data(),
                           static_cast<int64_t>(bits.size()) / kernel::size_of(element))) {}

  std::vector<std::byte> bits;
  std::vector<double> numbers;
};

struct GradientAnswer {
  WrittenGradient query, key, value, bias;
};

/// Runs all tasks of a problem's gradients, then all merges.
inline void run_gradients_in_place(const kernel::Kernel& kernel, const kernel::Problem& p,
                                   const kernel::Gradients& g, const RunOptions& options = {}) {
  const kernel::Plan plan = kernel.plan_gradients(p, g);
  const GuardedMemory partials(plan.partials_bytes, kernel::kAlignment);
  run_steps(plan.tasks, plan.workspace_bytes, options, [&](int64_t i, void* workspace) {
    kernel.run_gradients(p, g, i, workspace, partials.data());
  });
  run_steps(plan.merges, plan.workspace_bytes, options, [&](int64_t i, void* workspace) {
    kernel.merge_gradients(p, g, i, workspace, partials.data());
  });
}

/// What a kernel's own forward pass leaves to the gradients.
class ForwardPass {
 public:
  ForwardPass(const kernel::Kernel& kernel, kernel::Problem p)
      : output_({p.batches, p.heads, p.queries, p.value_dim}, p.element),
        logsumexp_(sum_bytes(p)),
        logsumexp_rest_(sum_bytes(p)) {
    output_.receive(p);
    p.logsumexp = logsumexp_.data();
    p.logsumexp_rest = logsumexp_rest_.data();
    run_in_place(kernel, p);
  }

  /// A call without places for what is asked.
  kernel::Gradients gradients(const GradientRequest& request) const {
    kernel::Gradients g;
    g.output = output_.view();
    g.logsumexp = logsumexp_.data();
    g.logsumexp_rest = logsumexp_rest_.data();
    g.output_gradient = request.output_gradient;
    g.logsumexp_gradient = request.logsumexp_gradient;
    return g;
  }

 private:
  static int64_t sum_bytes(const kernel::Problem& p) {
    return p.batches * p.heads * p.queries * kernel::size_of(sum_element(p.element));
  }

  OutputRows output_;
  GuardedMemory logsumexp_, logsumexp_rest_;
};

/// What a kernel writes of a problem's gradients, after a forward pass of its own.
inline GradientAnswer run_gradients(const kernel::Kernel& kernel, const kernel::Problem& p,
                                    const GradientRequest& request,
                                    const RunOptions& options = {}) {
  const ForwardPass forward(kernel, p);
  kernel::Gradients g = forward.gradients(request);
  const OutputRows query({p.batches, p.heads, p.queries, p.head_dim}, p.element);
  const OutputRows key({p.batches, p.key_heads, p.keys, p.head_dim}, p.element);
  const OutputRows value({p.batches, p.key_heads, p.keys, p.value_dim}, p.element);
  const Extent& sizes = request.bias;
  const int64_t bias_bytes =
      sizes[0] * sizes[1] * sizes[2] * sizes[3] * kernel::size_of(p.bias_element);
  const GuardedMemory bias(bias_bytes);
  if (request.query) g.query = query.gradient();
  if (request.key) g.key = key.gradient();
  if (request.value) g.value = value.gradient();
  if (request.wants_bias()) g.bias = {bias.data(), sizes[0], sizes[1], sizes[2], sizes[3]};

  run_gradients_in_place(kernel, p, g, options);

  GradientAnswer answer;
  if (request.query) answer.query = {p.element, query.bits()};
  if (request.key) answer.key = {p.element, key.bits()};
  if (request.value) answer.value = {p.element, value.bits()};
  if (request.wants_bias()) answer.bias = {p.bias_element, {bias.data(), bias.data() + bias_bytes}};
  return answer;
}

}  // namespace attn::testing
