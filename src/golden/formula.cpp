#include "golden/formula.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <bit>
#include <cmath>

namespace attn::golden {
namespace {

constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
constexpr int64_t kProjections = 64;

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// Whether the mask leaves element i, one of a last axis of `columns` and an axis of `rows`, open.
bool is_open(const MaskSpec& mask, uint64_t salt, int64_t i, int64_t rows, int64_t columns) {
  const int64_t row = i / columns % rows;
  const int64_t column = i % columns;
  if (mask.kind == "tril") return column <= row + mask.offset;
  if (mask.kind == "all_blocked") return false;
  const bool first_key = column == 0 && columns > 1;  // no row without an open key
  return first_key || (formula_bits(salt, static_cast<uint64_t>(i)) & 3) != 0;
}

bool blocks_where_true(const std::string& module) {
  return module == "AttentionScore" || module == "PreprojectedMultiheadAttention" ||
         module == "ProjectedMultiheadAttention";
}

}  // namespace

uint64_t formula_bits(uint64_t salt, uint64_t i) {
  uint64_t z = salt + kGoldenRatio * (i + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

uint64_t formula_salt(std::string_view tensor_name, uint64_t seed) {
  return fnv1a(tensor_name) + kGoldenRatio * seed;
}

at::Tensor formula_tensor(std::string_view tensor_name, uint64_t seed, at::IntArrayRef shape,
                          int exponent, at::ScalarType dtype) {
  at::Tensor tensor = at::empty(shape, at::kDouble);
  auto* values = tensor.mutable_data_ptr<double>();
  const uint64_t salt = formula_salt(tensor_name, seed);
  const double unit = std::ldexp(1.0, exponent - 6);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const auto byte = static_cast<int>(formula_bits(salt, static_cast<uint64_t>(i)) >> 56);
    values[i] = (byte - 128) * unit;
  }
  return tensor.to(dtype);
}

int parameter_exponent(const at::Tensor& parameter) {
  const auto fan_in = static_cast<uint64_t>(parameter.size(-1));
  return -((std::bit_width(fan_in) - 1) / 2);
}

at::Tensor make_mask(const Case& golden_case) {
  if (!golden_case.mask) return {};
  const MaskSpec& mask = *golden_case.mask;
  at::Tensor open = at::empty(mask.shape, at::kBool);
  auto* values = open.mutable_data_ptr<bool>();
  const uint64_t salt = formula_salt("mask", golden_case.seed);
  const int64_t columns = mask.shape.empty() ? 1 : mask.shape.back();
  const int64_t rows = mask.shape.size() < 2 ? 1 : mask.shape[mask.shape.size() - 2];
  for (int64_t i = 0; i < open.numel(); ++i) {
    values[i] = is_open(mask, salt, i, rows, columns);
  }
  if (mask.kind == "row_blocked") {  // the last row of the last matrix
    for (int64_t i = open.numel() - columns; i < open.numel(); ++i) values[i] = false;
  }
  return (blocks_where_true(golden_case.module) ? open.logical_not() : open).to(mask.dtype);
}

at::Tensor with_layout(const at::Tensor& tensor, const std::string& layout) {
  if (layout == "contiguous") return tensor;
  if (layout == "transposed") return tensor.transpose(-1, -2).contiguous().transpose(-1, -2);
  if (layout == "expanded") return tensor.narrow(0, 0, 1).expand(tensor.sizes());
  const int64_t width = tensor.size(-1);
  std::vector<int64_t> shape = tensor.sizes().vec();
  if (layout == "strided") {
    shape.back() = 2 * width;
    return at::zeros(shape, tensor.options()).slice(-1, 0, 2 * width, 2).copy_(tensor);
  }
  TORCH_CHECK(layout == "fused",
              "[golden] layout: expected contiguous, transposed, strided, fused "
              "or expanded, got \"",
              layout, "\"");
  shape.back() = 3 * width;
  return at::zeros(shape, tensor.options()).narrow(-1, width, width).copy_(tensor);
}

at::Tensor projections(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  const auto* x = values.const_data_ptr<double>();
  at::Tensor sums = at::zeros({kProjections}, at::kDouble);
  auto* sum = sums.mutable_data_ptr<double>();
  for (int64_t j = 0; j < kProjections; ++j) {
    const uint64_t salt = fnv1a("projection") + static_cast<uint64_t>(j);
    for (int64_t i = 0; i < values.numel(); ++i) {
      sum[j] += (formula_bits(salt, static_cast<uint64_t>(i)) & 1) != 0 ? x[i] : -x[i];
    }
  }
  return sums;
}

}  // namespace attn::golden
