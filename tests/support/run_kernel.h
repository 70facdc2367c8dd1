#pragma once

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "support/elements.h"
#include "support/guarded_memory.h"
#include "support/output_rows.h"
#include "support/plain_problem.h"

namespace attn::testing {

struct RunOptions {
  bool logsumexp = false;
  bool weights = false;
  bool reversed = false;  ///< Tasks, and merges, from the last to the first.
  int threads = 1;
};

/// What a kernel wrote, in row-major order.
struct Answer {
  std::vector<std::byte> bits;  ///< of the output, [B, H, L, Dv]
  std::vector<double> output;
  std::vector<double> logsumexp;
  std::vector<double> weights;
};

/// Calls step(i, workspace) for every i below n, each thread with a workspace of its own.
inline void run_steps(int64_t n, int64_t workspace_bytes, const RunOptions& options,
                      const std::function<void(int64_t, void*)>& step) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    const GuardedMemory workspace(workspace_bytes, kernel::kAlignment);
    for (int64_t i = next++; i < n; i = next++) {
      step(options.reversed ? n - 1 - i : i, workspace.data());
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < options.threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

/// Runs all tasks of a problem, then all merges.
inline void run_in_place(const kernel::Kernel& kernel, const kernel::Problem& p,
                         const RunOptions& options = {}) {
  const kernel::Plan plan = kernel.plan(p);
  const GuardedMemory partials(plan.partials_bytes, kernel::kAlignment);
  run_steps(plan.tasks, plan.workspace_bytes, options,
            [&](int64_t i, void* workspace) { kernel.run(p, i, workspace, partials.data()); });
  run_steps(plan.merges, plan.workspace_bytes, options,
            [&](int64_t i, void* workspace) { kernel.merge(p, i, workspace, partials.data()); });
}

/// What a problem's kernel writes.
inline Answer run(const kernel::Kernel& kernel, kernel::Problem p, const RunOptions& options = {}) {
  const kernel::Element sums = sum_element(p.element);
  const int64_t rows = p.batches * p.heads * p.queries;
  const OutputRows output({p.batches, p.heads, p.queries, p.value_dim}, p.element);
  const GuardedMemory logsumexp(rows * kernel::size_of(sums));
  const GuardedMemory weights(options.weights ? rows * p.keys * kernel::size_of(p.element) : 0);
  output.receive(p);
  if (options.logsumexp) p.logsumexp = logsumexp.data();
  if (options.weights) p.weights = weights.data();

  run_in_place(kernel, p, options);

  Answer answer;
  answer.bits = output.bits();
  answer.output = numbers_of(p.element, answer.bits.data(), rows * p.value_dim);
  if (options.logsumexp) answer.logsumexp = numbers_of(sums, logsumexp.data(), rows);
  if (options.weights) {
    answer.weights = numbers_of(p.element, weights.data(), rows * p.keys);
  }
  return answer;
}

/// How far an output is from the plain one.
struct Distance {
  double relative =
      0.0;  ///< Frobenius norm of the difference over that of the output or its spread
  double largest = 0.0;
  bool same_places = true;  ///< of NaN and ±∞
};

inline Distance distance(const Answer& answer, const PlainAnswer& plain) {
  Distance result;
  double difference = 0.0, output = 0.0, spread = 0.0;
  result.same_places = answer.output.size() == plain.output.size();
  for (size_t i = 0; result.same_places && i < plain.output.size(); ++i) {
    const double expected = plain.output[i], actual = answer.output[i];
    if (!std::isfinite(expected) || !std::isfinite(actual)) {
      result.same_places = actual == expected || (std::isnan(actual) && std::isnan(expected));
      continue;
    }
    result.largest = std::max(result.largest, std::abs(actual - expected));
    difference += (actual - expected) * (actual - expected);
    output += expected * expected;
    spread += plain.spread[i] * plain.spread[i];
  }
  if (difference > 0.0) result.relative = std::sqrt(difference / std::max(output, spread));
  return result;
}

}  // namespace attn::testing
