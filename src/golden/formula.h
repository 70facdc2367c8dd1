#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "golden/case.h"

/// Tensors by an exact formula that Python shares: small integers scaled by a power of two, the
/// same value in every dtype, so that golden files need not hold inputs and parameters.
namespace attn::golden {

/// The 64 random bits of element i: the splitmix64 finaliser on salt + golden ratio · (i + 1).
uint64_t formula_bits(uint64_t salt, uint64_t i);

/// FNV-1a of the tensor's name, shifted by the case's seed.
uint64_t formula_salt(std::string_view tensor_name, uint64_t seed);

/// Values n · 2^(exponent − 6) with n uniform in −128 … 127, contiguous.
at::Tensor formula_tensor(std::string_view tensor_name, uint64_t seed, at::IntArrayRef shape,
                          int exponent, at::ScalarType dtype);

/// The exponent at which a parameter has about unit gain: −⌊⌊log2 fan_in⌋ / 2⌋.
int parameter_exponent(const at::Tensor& parameter);

/// The mask of a case in the polarity of its module (true or non-zero is open, except in
/// AttentionScore and the Projected family, where true is blocked); undefined without one.
at::Tensor make_mask(const Case& golden_case);

/// The same values in the memory layout of the case:
/// - contiguous;
/// - transposed: stored with the last two axes swapped;
/// - strided: every second element of a last axis twice as long;
/// - fused: the middle third of a last axis three times as long;
/// - expanded: batch 0 repeated with stride 0 (other values then, where batches differ).
at::Tensor with_layout(const at::Tensor& tensor, const std::string& layout);

/// 64 sums of the elements with random signs, in float64: what a golden file keeps of a large
/// tensor. A single wrong element changes all of them.
at::Tensor projections(const at::Tensor& tensor);

}  // namespace attn::golden
