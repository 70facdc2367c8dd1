#pragma once

#include <cmath>

#include "kernel/attention.h"

namespace attn::kernel {

/// Writes top + log(sum) as the log-sum-exp of a row, and what rounding took from it.
template <class T>
void store_logsumexp(const Problem& p, int64_t row, T top, T sum) {
  if (p.logsumexp == nullptr && p.logsumexp_rest == nullptr) return;
  const T log_sum = std::log(sum);
  const T total = top + log_sum;
  if (p.logsumexp != nullptr) static_cast<T*>(p.logsumexp)[row] = total;
  if (p.logsumexp_rest == nullptr) return;
  const T part = total - top;  // Knuth's exact error of a sum
  const T rest = (top - (total - part)) + (log_sum - part);
  static_cast<T*>(p.logsumexp_rest)[row] = std::isfinite(total) ? rest : T(0);
}

}  // namespace attn::kernel
