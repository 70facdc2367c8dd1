#pragma once

#include "kernel/attention.h"

namespace attn::kernel {

/// The output of one query, in double precision and key after key, where a blocked key that has no
/// weight contributes nothing, not even 0 · NaN. [Dv] numbers into `output`.
///
/// The tiles multiply every value by its weight; a value of NaN or ∞ behind a mask would reach the
/// rows that may not see it. Such rows are computed again by this function.
void careful_row(const Problem& problem, int64_t b, int64_t h, int64_t query, double* output);

/// Likewise the part of one query's gradient that the keys [first, last) give: [D] numbers.
void careful_query_gradient(const Problem& problem, const Gradients& gradients, int64_t b,
                            int64_t h, int64_t query, int64_t first, int64_t last,
                            double* gradient);

}  // namespace attn::kernel
