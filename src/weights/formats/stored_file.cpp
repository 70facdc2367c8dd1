#include "weights/formats/stored_file.h"

#include <algorithm>
#include <limits>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();

/// a + b * c, or nothing where it is 2^63 or more.
std::optional<std::uint64_t> add_product(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(b, c, &result) || __builtin_add_overflow(result, a, &result) ||
      result > kMost) {
    return std::nullopt;
  }
  return result;
}

std::string list_text(std::span<const std::uint64_t> values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i)
    text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

[[noreturn]] void refuse(const StoredTensor& tensor, const std::string& rule) {
  throw FormatError("tensor " + in_quotes(tensor.name) + ": " + rule);
}

/// "float32 [2, 3], strides [3, 1], offset 0"
std::string place_text(const StoredTensor& tensor) {
  return std::string(name_of(tensor.type)) + ' ' + list_text(tensor.sizes) + ", strides " +
         list_text(tensor.strides) + ", offset " + std::to_string(tensor.offset);
}

}  // namespace

std::vector<std::uint64_t> contiguous_strides(std::span<const std::uint64_t> sizes) {
  std::vector<std::uint64_t> strides(sizes.size());
  std::uint64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::uint64_t>(1, sizes[i]);
  }
  return strides;
}

std::optional<std::uint64_t> element_count(std::span<const std::uint64_t> sizes) {
  // As LibTorch counts: a zero does not excuse an overflow elsewhere.
  std::uint64_t count = 1;
  for (const std::uint64_t size : sizes) {
    const auto product = add_product(0, count, std::max<std::uint64_t>(1, size));
    if (!product) return std::nullopt;
    count = *product;
  }
  return std::ranges::find(sizes, 0u) == sizes.end() ? count : 0;
}

void check_tensor(const StoredTensor& tensor, std::uint64_t storage_size) {
  if (tensor.sizes.size() > kMaxDimensions) {
    refuse(tensor, "expected at most " + std::to_string(kMaxDimensions) + " dimensions, got " +
                       std::to_string(tensor.sizes.size()));
  }
  if (tensor.strides.size() != tensor.sizes.size()) {
    refuse(tensor, "expected as many strides as sizes, got " + place_text(tensor));
  }
  const auto count = element_count(tensor.sizes);
  // One past the last element, in elements; 0 where that is 2^63 or more.
  std::uint64_t end = add_product(tensor.offset, 1, 1).value_or(0);
  for (std::size_t i = 0; end > 0 && i < tensor.sizes.size(); ++i) {
    if (tensor.strides[i] > kMost) end = 0;
    if (end > 0 && tensor.sizes[i] > 1)
      end = add_product(end, tensor.sizes[i] - 1, tensor.strides[i]).value_or(0);
  }
  const auto bits = add_product(0, end, bits_of(tensor.type));
  if (!count || end == 0 || !bits)
    refuse(tensor, "expected a size below 2^63, got " + place_text(tensor));
  if (*count > 0 && (*bits + 7) / 8 > storage_size) {
    refuse(tensor, "expected its elements inside the " + std::to_string(storage_size) +
                       " bytes of its storage, got " + place_text(tensor));
  }
}

}  // namespace attn::formats
