#pragma once

#include <ATen/ops/zeros.h>
#include <attn/functional.h>

#include <cmath>
#include <optional>
#include <vector>

namespace attn::testing {

/// Attention by plain loops in float64 over the formula of `attn::attention`, sharing no code with
/// the library: what all of its backends are held against. `open` and `bias` have the whole shape
/// [B, H, L, S] or are undefined; no dropout.
struct PlainAttention {
  double scale = 1.0;
  std::optional<double> logit_clip = std::nullopt, softcap = std::nullopt;
  at::Tensor open = {}, bias = {};
  double masked_score = -INFINITY;
  bool fully_masked_is_nan = false;

  at::Tensor output = {}, weights = {}, logsumexp = {};  // of the last call

  void operator()(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
    const auto B = query.size(0), H = query.size(1), L = query.size(2), D = query.size(3);
    const auto Hk = key.size(1), S = key.size(2), Dv = value.size(3);
    const auto numbers = [](const at::Tensor& x) {
      return x.defined() ? x.to(at::kDouble).contiguous() : x;
    };
    const auto pointer = [](const at::Tensor& x) {
      return x.defined() ? x.const_data_ptr<double>() : nullptr;
    };
    const at::Tensor qt = numbers(query), kt = numbers(key), vt = numbers(value),
                     bt = numbers(bias), ot = numbers(open);
    const double *q = pointer(qt), *k = pointer(kt), *v = pointer(vt), *added = pointer(bt),
                 *opened = pointer(ot);
    output = at::zeros({B, H, L, Dv}, at::kDouble);
    weights = at::zeros({B, H, L, S}, at::kDouble);
    logsumexp = at::zeros({B, H, L}, at::kDouble);
    double* out = output.mutable_data_ptr<double>();
    for (int64_t row = 0; row < B * H * L; ++row) {
      const int64_t kv = row / L / H * Hk + row / L % H / (H / Hk);  // of key and value
      double* p = weights.mutable_data_ptr<double>() + row * S;
      double largest = -INFINITY, sum = 0.0;
      for (int64_t j = 0; j < S; ++j) {
        double dot = 0.0;
        for (int64_t d = 0; d < D; ++d) dot += q[row * D + d] * k[(kv * S + j) * D + d];
        p[j] = squash(scale * dot);
        if (added != nullptr) p[j] += added[row * S + j];
        if (opened != nullptr && opened[row * S + j] == 0) p[j] = masked_score;
        largest = std::max(largest, p[j]);
      }
      for (int64_t j = 0; j < S; ++j)
        sum += p[j] = p[j] == -INFINITY ? 0 : std::exp(p[j] - largest);
      for (int64_t j = 0; j < S; ++j) p[j] = sum > 0 ? p[j] / sum : fully_masked_is_nan ? NAN : 0.0;
      logsumexp.mutable_data_ptr<double>()[row] = sum > 0 ? largest + std::log(sum) : -INFINITY;
      for (int64_t j = 0; j < S; ++j) {
        for (int64_t d = 0; d < Dv; ++d) out[row * Dv + d] += p[j] * v[(kv * S + j) * Dv + d];
      }
    }
  }

 private:
  double squash(double u) const {
    if (logit_clip) u = *logit_clip * std::tanh(u);
    if (softcap) u = *softcap * std::tanh(u / *softcap);
    return u;
  }
};

}  // namespace attn::testing
