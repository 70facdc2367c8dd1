#include "kernel/careful.h"

#include <hwy/base.h>

#include <algorithm>
#include <cmath>

#include "kernel/dropout.h"
#include "kernel/half.h"

namespace attn::kernel {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
/// Where the tiles' exp becomes 0: e^-87.
constexpr double kNoWeight = 1.6e-38;

double read(Element element, const void* data, int64_t index) {
  switch (element) {
    case Element::kFloat32:
      return static_cast<const float*>(data)[index];
    case Element::kFloat64:
      return static_cast<const double*>(data)[index];
    case Element::kBFloat16:
      return hwy::F32FromBF16(static_cast<const hwy::bfloat16_t*>(data)[index]);
    case Element::kFloat16:
      return half_to_float(static_cast<const uint16_t*>(data)[index]);
  }
  return 0.0;
}

int64_t index(const View& view, int64_t b, int64_t h, int64_t row, int64_t column) {
  return b * view.batch + h * view.head + row * view.row + column * view.column;
}

bool byte_at(const View& view, int64_t b, int64_t h, int64_t query, int64_t key) {
  return static_cast<const uint8_t*>(view.data)[index(view, b, h, query, key)] != 0;
}

struct Logit {
  double value;
  bool blocked;
  double slope = 0.0;  ///< by the product of query and key
};

Logit logit_of(const Problem& p, int64_t b, int64_t h, int64_t query, int64_t key) {
  if ((p.causal && key > query + p.causal_offset) ||
      (p.attend.data != nullptr && !byte_at(p.attend, b, h, query, key)) ||
      (p.block.data != nullptr && byte_at(p.block, b, h, query, key))) {
    return {p.masked_score, true};
  }
  double bias = 0.0;
  if (p.bias.data != nullptr) {
    bias = read(p.bias_element, p.bias.data, index(p.bias, b, h, query, key));
    if (bias == kMinusInfinity) return {bias, true};
  }
  const int64_t key_head = h / (p.heads / p.key_heads);
  double logit = 0.0;
  for (int64_t x = 0; x < p.head_dim; ++x) {
    logit += read(p.element, p.query.data, index(p.query, b, h, query, x)) *
             read(p.element, p.key.data, index(p.key, b, key_head, key, x));
  }
  logit *= p.scale;
  if (p.squash == Squash::kNone) return {logit + bias, false, p.scale};
  const bool clip = p.squash == Squash::kClip;
  const double tanh = std::tanh(clip ? logit : logit / p.squash_limit);
  const double slope = (clip ? p.squash_limit : 1.0) * (1.0 - tanh * tanh);
  return {p.squash_limit * tanh + bias, false, p.scale * slope};
}

double read_sum(const Problem& p, const void* sums, int64_t index) {
  if (sums == nullptr) return 0.0;
  return p.element == Element::kFloat64 ? static_cast<const double*>(sums)[index]
                                        : static_cast<const float*>(sums)[index];
}

}  // namespace

void careful_row(const Problem& p, int64_t b, int64_t h, int64_t query, double* output) {
  double top = kMinusInfinity;
  for (int64_t key = 0; key < p.keys; ++key) {
    top = std::max(top, logit_of(p, b, h, query, key).value);  // which passes over NaN
  }
  std::fill_n(output, p.value_dim, 0.0);
  const int64_t key_head = h / (p.heads / p.key_heads);
  const double scale = dropout_scale(p);
  double sum = 0.0;
  for (int64_t key = 0; key < p.keys; ++key) {
    const Logit logit = logit_of(p, b, h, query, key);
    double weight = logit.value == kMinusInfinity ? 0.0 : std::exp(logit.value - top);
    sum += weight;
    if (logit.blocked && weight < kNoWeight) continue;
    weight = keeps_weight(p, b, h, query, key) ? weight * scale : 0.0;
    for (int64_t x = 0; x < p.value_dim; ++x) {
      output[x] += weight * read(p.element, p.value.data, index(p.value, b, key_head, key, x));
    }
  }
  const double nothing = p.nan_when_fully_masked ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  for (int64_t x = 0; x < p.value_dim; ++x) output[x] = sum == 0.0 ? nothing : output[x] / sum;
}

void careful_query_gradient(const Problem& p, const Gradients& g, int64_t b, int64_t h,
                            int64_t query, int64_t first, int64_t last, double* gradient) {
  std::fill_n(gradient, p.head_dim, 0.0);
  const int64_t row = (b * p.heads + h) * p.queries + query;
  double logsumexp = read_sum(p, g.logsumexp, row);
  if (logsumexp == kMinusInfinity) {
    if (!p.nan_when_fully_masked) return;
    logsumexp = std::numeric_limits<double>::quiet_NaN();
  }
  const double rest = read_sum(p, g.logsumexp_rest, row);
  const auto output_gradient = [&](int64_t x) {
    return read(p.element, g.output_gradient.data, index(g.output_gradient, b, h, query, x));
  };
  double delta = -read_sum(p, g.logsumexp_gradient, row);
  for (int64_t x = 0; x < p.value_dim; ++x) {
    delta += output_gradient(x) * read(p.element, g.output.data, index(g.output, b, h, query, x));
  }
  const int64_t key_head = h / (p.heads / p.key_heads);
  for (int64_t key = first; key < last; ++key) {
    const Logit logit = logit_of(p, b, h, query, key);
    if (logit.blocked) continue;
    double product = 0.0;
    if (p.dropped == 0 || keeps_weight(p, b, h, query, key)) {
      for (int64_t x = 0; x < p.value_dim; ++x) {
        product +=
            output_gradient(x) * read(p.element, p.value.data, index(p.value, b, key_head, key, x));
      }
      product *= dropout_scale(p);
    }
    const double weight = std::exp(logit.value - logsumexp - rest);
    const double factor = weight * (product - delta) * logit.slope;
    for (int64_t x = 0; x < p.head_dim; ++x) {
      gradient[x] += factor * read(p.element, p.key.data, index(p.key, b, key_head, key, x));
    }
  }
}

}  // namespace attn::kernel
