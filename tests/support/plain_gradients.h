#pragma once

#include <kernel/attention.h>
#include <kernel/dropout.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/elements.h"
#include "support/gradient_request.h"
#include "support/plain_inputs.h"

namespace attn::testing {

/// One gradient in row-major order.
struct PlainGradient {
  std::vector<double> numbers;
  /// What errors are relative to, where terms cancel: the gradient's size if the terms of its sums
  /// had random signs, and zero where it is zero whatever the numbers are.
  std::vector<double> spread;
};

struct PlainGradients {
  PlainGradient query;  ///< [B, H, L, D]
  PlainGradient key;    ///< [B, Hk, S, D]
  PlainGradient value;  ///< [B, Hk, S, Dv]
  PlainGradient bias;   ///< of the request's sizes; empty if it is not asked for
};

/// The gradients of attention by plain loops over float64 numbers, with sums in long double, sharing
/// no code with the kernel. They start from the inputs, not from what a forward pass has rounded. What
/// has no weight or is dropped adds nothing, not even 0 · NaN.
class PlainGradientProblem {
 public:
  PlainGradientProblem(const kernel::Problem& problem, const GradientRequest& request)
      : p_(problem), request_(request) {}

  PlainGradients solve() {
    const int64_t rows = p_.batches * p_.heads * p_.queries;
    const int64_t keys = p_.batches * p_.key_heads * p_.keys;
    const Extent& bias = request_.bias;
    Sums query(rows * p_.head_dim), key(keys * p_.head_dim), value(keys * p_.value_dim),
        bias_sums(bias[0] * bias[1] * bias[2] * bias[3]);
    for (int64_t b = 0; b < p_.batches; ++b) {
      for (int64_t h = 0; h < p_.heads; ++h) {
        const int64_t key_head = h / (p_.heads / p_.key_heads);
        const int64_t first_key = (b * p_.key_heads + key_head) * p_.keys;
        query_ = rows_of(p_.query, p_.element, b, h, p_.queries, p_.head_dim);
        key_ = rows_of(p_.key, p_.element, b, key_head, p_.keys, p_.head_dim);
        value_ = rows_of(p_.value, p_.element, b, key_head, p_.keys, p_.value_dim);
        output_gradient_ =
            rows_of(request_.output_gradient, p_.element, b, h, p_.queries, p_.value_dim);
        for (int64_t i = 0; i < p_.queries; ++i) {
          const int64_t row = (b * p_.heads + h) * p_.queries + i;
          weigh(b, h, i);
          add_value(i, first_key, value);
          differentiate_weights(row, i);
          add_query(row, query);
          add_key(i, first_key, key);
          if (request_.wants_bias()) add_bias(b, h, i, bias_sums);
        }
      }
    }
    return {query.round(), key.round(), value.round(), bias_sums.round()};
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  struct Sums {
    explicit Sums(int64_t size) : sums(size), squares(size) {}

    void add(int64_t at, long double term, double square) {
      sums[at] += term;
      squares[at] += square;
    }

    PlainGradient round() const {
      PlainGradient gradient;
      gradient.numbers.assign(sums.begin(), sums.end());
      for (const double square : squares) gradient.spread.push_back(std::sqrt(square));
      return gradient;
    }

    std::vector<long double> sums;
    std::vector<double> squares;  ///< of terms
  };

  /// One key as seen by the query at hand.
  struct Weight {
    bool blocked = false;     ///< By a mask or a bias of −∞; its logit has no gradient.
    double weight = 0.0;      ///< before dropout
    double kept = 0.0;        ///< what dropout multiplies it with
    double slope = 0.0;       ///< of the squash
    double slope_size = 0.0;  ///< what the slope's error is relative to
    double logit_gradient = 0.0;
    double square = 0.0;  ///< of the terms of weight · the weight's gradient
  };

  static double squared(double x) { return x * x; }

  void squash(double& u, Weight& w) const {
    w.slope = w.slope_size = 1.0;
    if (p_.squash == kernel::Squash::kNone) return;
    const bool clip = p_.squash == kernel::Squash::kClip;
    const double t = std::tanh(clip ? u : u / p_.squash_limit);
    u = p_.squash_limit * t;
    const double steepest = clip ? p_.squash_limit : 1.0;
    w.slope = steepest * (1.0 - t) * (1.0 + t);
    // 1 − t² of a tanh that is off by 4 ulp, 2.4e-7, is off by 4.8e-7, a third of what bounds other
    // errors.
    w.slope_size = std::max(w.slope, steepest / 3.0);
  }

  /// Weights, and the slopes of their logits.
  void weigh(int64_t b, int64_t h, int64_t i) {
    weights_.assign(p_.keys, {});
    std::vector<double> logits(p_.keys);
    double largest = -kInfinity;
    for (int64_t j = 0; j < p_.keys; ++j) {
      Weight& w = weights_[j];
      const bool masked = is_masked(p_, b, h, i, j);
      const bool kept = p_.dropped == 0 || kernel::keeps_weight(p_, b, h, i, j);
      w.kept = kept ? kernel::dropout_scale(p_) : 0.0;
      const double bias = p_.bias.data == nullptr
                              ? 0.0
                              : read(p_.bias_element, p_.bias.data, index_of(p_.bias, b, h, i, j));
      long double dot = 0.0;
      for (int64_t x = 0; x < p_.head_dim; ++x) {
        dot += static_cast<long double>(query_[i * p_.head_dim + x]) * key_[j * p_.head_dim + x];
      }
      double u = static_cast<double>(dot * p_.scale);
      squash(u, w);
      w.blocked = masked || bias == -kInfinity;
      logits[j] = masked ? p_.masked_score : w.blocked ? bias : u + bias;
      largest = std::max(largest, logits[j]);
    }
    long double sum = 0.0;
    for (int64_t j = 0; j < p_.keys; ++j) {
      weights_[j].weight = logits[j] == -kInfinity ? 0.0 : std::exp(logits[j] - largest);
      sum += weights_[j].weight;
    }
    const double nothing = p_.nan_when_fully_masked ? kNaN : 0.0;
    for (Weight& w : weights_) {
      w.weight = sum == 0.0 ? nothing : static_cast<double>(w.weight / sum);
    }
  }

  void add_value(int64_t i, int64_t first_key, Sums& value) const {
    for (int64_t j = 0; j < p_.keys; ++j) {
      const double weight = weights_[j].weight * weights_[j].kept;
      if (weight == 0.0 || weights_[j].kept == 0.0) continue;
      for (int64_t x = 0; x < p_.value_dim; ++x) {
        const double term = weight * output_gradient_[i * p_.value_dim + x];
        value.add((first_key + j) * p_.value_dim + x, term, squared(term));
      }
    }
  }

  /// Gradients of the logits before the squash's slope, and what their errors are relative to.
  void differentiate_weights(int64_t row, int64_t i) {
    const double* output_gradient = output_gradient_.data() + i * p_.value_dim;
    std::vector<long double> output(p_.value_dim);
    std::vector<double> output_squares(p_.value_dim);
    for (int64_t j = 0; j < p_.keys; ++j) {
      const double weight = weights_[j].weight * weights_[j].kept;
      for (int64_t x = 0; x < p_.value_dim && weight != 0.0; ++x) {
        const double term = weight * value_[j * p_.value_dim + x];
        output[x] += term;
        output_squares[x] += squared(term);
      }
    }
    long double mean = 0.0;  // of the weights' gradients
    double mean_square = 0.0;
    for (int64_t x = 0; x < p_.value_dim; ++x) {
      mean += output_gradient[x] * output[x];
      if (output_squares[x] == 0.0) continue;
      // float16 numbers below 2^-14 are rounded as those at it.
      const double smallest = p_.element == kernel::Element::kFloat16 ? 0x1p-14 : 0.0;
      const double size = std::max(
          {static_cast<double>(std::abs(output[x])), std::sqrt(output_squares[x]), smallest});
      mean_square += squared(output_gradient[x] * size);
    }
    mean_square = std::max(mean_square, squared(static_cast<double>(mean)));
    if (request_.logsumexp_gradient != nullptr) {
      const double gradient = read(sum_element(p_.element), request_.logsumexp_gradient, row);
      mean -= gradient;
      mean_square += squared(gradient);
    }
    mean_size_ = std::sqrt(mean_square);

    for (int64_t j = 0; j < p_.keys; ++j) {
      Weight& w = weights_[j];
      if (w.blocked || w.weight == 0.0) continue;
      long double gradient = 0.0;
      double square = 0.0;
      for (int64_t x = 0; x < p_.value_dim && w.kept != 0.0; ++x) {
        const long double term =
            static_cast<long double>(output_gradient[x]) * value_[j * p_.value_dim + x];
        gradient += term;
        square += squared(static_cast<double>(term));
      }
      gradient *= w.kept;
      square = std::max(square * squared(w.kept), squared(static_cast<double>(gradient)));
      w.logit_gradient = static_cast<double>(w.weight * (gradient - mean));
      w.square = squared(w.weight) * square;
    }
  }

  /// An error of the mean meets all keys of a row at once.
  void add_query(int64_t row, Sums& query) const {
    for (int64_t x = 0; x < p_.head_dim; ++x) {
      const int64_t at = row * p_.head_dim + x;
      double with_mean = 0.0, with_mean_square = 0.0;
      for (int64_t j = 0; j < p_.keys; ++j) {
        const Weight& w = weights_[j];
        if (w.blocked || w.weight == 0.0) continue;
        const double key = p_.scale * key_[j * p_.head_dim + x];
        query.add(at, static_cast<long double>(w.logit_gradient) * w.slope * key,
                  w.square * squared(w.slope_size * key));
        with_mean += w.weight * w.slope_size * key;
        with_mean_square += squared(w.weight * w.slope_size * key);
      }
      if (with_mean_square == 0.0) continue;  // though the mean may be NaN
      query.squares[at] += squared(mean_size_) * std::max(squared(with_mean), with_mean_square);
    }
  }

  void add_key(int64_t i, int64_t first_key, Sums& key) const {
    for (int64_t j = 0; j < p_.keys; ++j) {
      const Weight& w = weights_[j];
      if (w.blocked || w.weight == 0.0) continue;
      for (int64_t x = 0; x < p_.head_dim; ++x) {
        const double query = p_.scale * query_[i * p_.head_dim + x];
        key.add((first_key + j) * p_.head_dim + x,
                static_cast<long double>(w.logit_gradient) * w.slope * query,
                (w.square + squared(w.weight * mean_size_)) * squared(w.slope_size * query));
      }
    }
  }

  void add_bias(int64_t b, int64_t h, int64_t i, Sums& bias) const {
    const Extent& extent = request_.bias;
    const auto place = [&extent](int dimension, int64_t at) {
      return extent[dimension] == 1 ? 0 : at;
    };
    const int64_t row = (place(0, b) * extent[1] + place(1, h)) * extent[2] + place(2, i);
    double weight = 0.0;  // of the row so far
    for (int64_t j = 0; j < p_.keys; ++j) {
      const Weight& w = weights_[j];
      if (w.blocked || w.weight == 0.0) continue;
      const double before = extent[3] == 1 ? weight : 0.0;
      weight += w.weight;
      bias.add(row * extent[3] + place(3, j), w.logit_gradient,
               w.square + squared(mean_size_) * (squared(before + w.weight) - squared(before)));
    }
  }

  const kernel::Problem& p_;
  const GradientRequest& request_;
  std::vector<double> query_, key_, value_, output_gradient_;
  std::vector<Weight> weights_;  ///< of the query at hand
  double mean_size_ = 0.0;
};

}  // namespace attn::testing
