#pragma once

#include <kernel/attention.h>
#include <kernel/dropout.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/elements.h"
#include "support/plain_inputs.h"

namespace attn::testing {

/// What a problem asks for, in row-major order.
struct PlainAnswer {
  std::vector<double> output;     ///< [B, H, L, Dv]
  std::vector<double> weights;    ///< [B, H, L, S]
  std::vector<double> logsumexp;  ///< [B, H, L]
  /// √Σ(weight·value)², [B, H, L, Dv]: the output's size if its terms had random signs. What errors
  /// are relative to, where the terms of a few outputs happen to cancel.
  std::vector<double> spread;
  double largest_dot = 0.0;  ///< |scale · query · key|
};

/// Attention by plain loops over float64 numbers, with sums in long double, sharing no code with the
/// kernel: what all of its targets are held against. A blocked key without weight adds nothing, not
/// even 0 · NaN.
class PlainProblem {
 public:
  explicit PlainProblem(const kernel::Problem& problem) : p_(problem) {}

  PlainAnswer solve() {
    for (int64_t b = 0; b < p_.batches; ++b) {
      for (int64_t h = 0; h < p_.heads; ++h) {
        const int64_t key_head = h / (p_.heads / p_.key_heads);
        query_ = rows_of(p_.query, p_.element, b, h, p_.queries, p_.head_dim);
        key_ = rows_of(p_.key, p_.element, b, key_head, p_.keys, p_.head_dim);
        value_ = rows_of(p_.value, p_.element, b, key_head, p_.keys, p_.value_dim);
        for (int64_t i = 0; i < p_.queries; ++i) solve_row(b, h, i);
      }
    }
    return answer_;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  double logit(double bias, int64_t i, int64_t j) {
    long double dot = 0.0;
    for (int64_t x = 0; x < p_.head_dim; ++x) {
      dot += static_cast<long double>(query_[i * p_.head_dim + x]) * key_[j * p_.head_dim + x];
    }
    double u = static_cast<double>(dot * p_.scale);
    answer_.largest_dot = std::max(answer_.largest_dot, std::abs(u));
    if (p_.squash == kernel::Squash::kClip) u = p_.squash_limit * std::tanh(u);
    if (p_.squash == kernel::Squash::kSoftcap) {
      u = p_.squash_limit * std::tanh(u / p_.squash_limit);
    }
    return u + bias;
  }

  void solve_row(int64_t b, int64_t h, int64_t i) {
    std::vector<double> p(p_.keys);
    std::vector<bool> blocked(p_.keys);
    double largest = -kInfinity;
    long double sum = 0.0;
    for (int64_t j = 0; j < p_.keys; ++j) {
      const double bias = p_.bias.data == nullptr
                              ? 0.0
                              : read(p_.bias_element, p_.bias.data, index_of(p_.bias, b, h, i, j));
      const bool masked = is_masked(p_, b, h, i, j);
      blocked[j] = masked || bias == -kInfinity;
      p[j] = masked ? p_.masked_score : blocked[j] ? bias : logit(bias, i, j);
      largest = std::max(largest, p[j]);
    }
    for (double& x : p) sum += x = x == -kInfinity ? 0.0 : std::exp(x - largest);
    answer_.logsumexp.push_back(sum == 0.0 ? -kInfinity
                                           : largest + std::log(static_cast<double>(sum)));

    const bool nan = p_.nan_when_fully_masked && p_.keys > 0;
    const double nothing = nan ? std::numeric_limits<double>::quiet_NaN() : 0.0;
    std::vector<long double> output(p_.value_dim, sum == 0.0 ? nothing : 0.0);
    std::vector<double> squares(p_.value_dim);
    for (int64_t j = 0; j < p_.keys; ++j) {
      const bool absent = blocked[j] && p[j] == 0.0;
      p[j] = sum == 0.0 ? nothing : static_cast<double>(p[j] / sum);
      const bool kept = p_.dropped == 0 || kernel::keeps_weight(p_, b, h, i, j);
      p[j] *= kept ? kernel::dropout_scale(p_) : 0.0;
      for (int64_t x = 0; x < p_.value_dim && !absent; ++x) {
        const double term = p[j] * value_[j * p_.value_dim + x];
        output[x] += term;
        squares[x] += term * term;
      }
    }
    answer_.weights.insert(answer_.weights.end(), p.begin(), p.end());
    answer_.output.insert(answer_.output.end(), output.begin(), output.end());
    for (const double square : squares) answer_.spread.push_back(std::sqrt(square));
  }

  const kernel::Problem& p_;
  std::vector<double> query_, key_, value_;
  PlainAnswer answer_;
};

}  // namespace attn::testing
