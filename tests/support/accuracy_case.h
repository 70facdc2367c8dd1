#pragma once

#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include <cctype>
#include <optional>
#include <string>

namespace attn::testing {

/// N(0, 1) inputs with a mask that LibTorch's scaled_dot_product_attention can express as well.
struct AccuracyCase {
  std::string name;
  int64_t B = 1, H = 1, Hk = 1, L = 1, S = 1, D = 1, Dv = 1;
  enum Masking { kNone, kCausal, kBool, kPadding, kBias } masking = kNone;

  /// The tensor of a mask that has one: true attends, numbers are added.
  at::Tensor random_mask(at::ScalarType dtype) const {
    if (masking == kBool) return at::randn({L, S}).gt(0);
    if (masking == kPadding) return at::randn({B, 1, 1, S}).gt(0);
    if (masking == kBias) return at::randn({L, S}).to(dtype);
    return {};
  }
};

/// How GoogleTest may name it.
inline std::string name_of(const ::testing::TestParamInfo<AccuracyCase>& c) {
  std::string name;
  for (const char letter : c.param.name) name += std::isalnum(letter) != 0 ? letter : '_';
  return name;
}

/// LibTorch's attention; `mask` may be undefined.
inline at::Tensor by_sdpa(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const at::Tensor& mask, bool is_causal) {
  const auto given = mask.defined() ? std::optional(mask) : std::nullopt;
  return at::scaled_dot_product_attention(query, key, value, given, /*dropout_p=*/0.0, is_causal,
                                          /*scale=*/std::nullopt,
                                          /*enable_gqa=*/query.size(1) != key.size(1));
}

}  // namespace attn::testing
