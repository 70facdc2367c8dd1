#pragma once

#include <kernel/attention.h>

#include <sstream>
#include <string>

#include "support/elements.h"
#include "support/owned_problem.h"

namespace attn::testing {

/// What is asked of a problem's gradients, and the gradients of its results.
struct GradientRequest {
  kernel::View output_gradient;              ///< [B, H, L, Dv]
  const void* logsumexp_gradient = nullptr;  ///< [B, H, L]
  bool query = true, key = true, value = true;
  Extent bias{};  ///< The sizes of the bias' gradient; without batches, it is not asked for.

  bool wants_bias() const { return bias[0] > 0; }
};

/// The sizes of a bias that has those of the logits in the named dimensions, and 1 in the others.
inline Extent bias_extent(const OwnedProblem& owned, std::initializer_list<int> dimensions) {
  Extent extent{1, 1, 1, 1};
  for (const int dimension : dimensions) extent[dimension] = owned.logits_extent()[dimension];
  return extent;
}

/// Gradients of the output, of these strides, and maybe of logsumexp from N(0, 1), in memory of the
/// problem; the gradients of query, key and value are asked for.
inline GradientRequest random_request(OwnedProblem& owned, Random& random, const kernel::View& view,
                                      bool logsumexp = true) {
  const kernel::Problem& p = owned.problem;
  GradientRequest request;
  const auto normal = OwnedProblem::normal(random);
  request.output_gradient = owned.tensor(owned.output_extent(), view, p.element, normal);
  if (logsumexp) {
    const Extent rows{p.batches, p.heads, p.queries, 1};
    request.logsumexp_gradient =
        owned.tensor(rows, strides_of(rows), sum_element(p.element), normal).data;
  }
  return request;
}

inline GradientRequest random_request(OwnedProblem& owned, Random& random, bool logsumexp = true) {
  return random_request(owned, random, strides_of(owned.output_extent()), logsumexp);
}

/// A request in words, for the trace of a failure.
inline std::string describe(const GradientRequest& request) {
  std::ostringstream text;
  const kernel::View& view = request.output_gradient;
  text << "gradients of" << (request.query ? " query" : "") << (request.key ? " key" : "")
       << (request.value ? " value" : "");
  if (request.wants_bias()) {
    text << " bias";
    for (const int64_t size : request.bias) text << " " << size;
  }
  text << ", output gradient strides " << view.batch << " " << view.head << " " << view.row << " "
       << view.column;
  if (request.logsumexp_gradient != nullptr) text << ", logsumexp gradient";
  return text.str();
}

}  // namespace attn::testing
