#include "functional/checks.h"

#include <ATen/ExpandUtils.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include <sstream>

namespace attn {

void check_positive(std::string_view where, std::initializer_list<NamedSize> sizes) {
  for (const auto& [name, size] : sizes) {
    TORCH_CHECK(size > 0, "[", where, "] ", name, ": expected at least 1, got ", size);
  }
}

void check_divisible(std::string_view where, NamedSize size, NamedSize heads) {
  TORCH_CHECK(size.second % heads.second == 0, "[", where, "] ", size.first,
              ": expected a multiple of ", heads.first, " = ", heads.second, ", got ", size.second);
}

void check_probability(std::string_view where, std::string_view name, double p) {
  TORCH_CHECK(p >= 0.0 && p <= 1.0, "[", where, "] ", name,
              ": expected a probability in [0, 1], got ", p);
}

void check_shape(std::string_view where, std::string_view name, const at::Tensor& tensor,
                 at::IntArrayRef expected, std::string_view layout) {
  bool fits = tensor.defined() && tensor.dim() == static_cast<int64_t>(expected.size());
  for (size_t i = 0; fits && i < expected.size(); ++i) {
    fits = expected[i] < 0 || tensor.size(static_cast<int64_t>(i)) == expected[i];
  }
  TORCH_CHECK(fits, "[", where, "] ", name, ": expected ", layout, ", got ", shape_text(tensor));
}

void check_like(std::string_view where, std::string_view name, const at::Tensor& tensor,
                std::string_view like_name, const at::Tensor& like) {
  TORCH_CHECK(tensor.device() == like.device(), "[", where, "] ", name, ": expected the device of ",
              like_name, ", ", like.device(), ", got ", tensor.device());
  if (tensor.scalar_type() == like.scalar_type()) return;
  const auto device = tensor.device().type();
  const auto is_cast = [](at::ScalarType dtype) {  // by autocast, which leaves float64 alone
    return at::isFloatingType(dtype) && dtype != at::kDouble;
  };
  const bool converted = is_cast(tensor.scalar_type()) && is_cast(like.scalar_type()) &&
                         at::autocast::is_autocast_available(device) &&
                         at::autocast::is_autocast_enabled(device);
  TORCH_CHECK(converted, "[", where, "] ", name, ": expected the dtype of ", like_name, ", ",
              like.scalar_type(), ", got ", tensor.scalar_type());
}

void check_size(std::string_view where, std::string_view name, std::string_view axis, int64_t size,
                int64_t expected, std::string_view from) {
  TORCH_CHECK(size == expected, "[", where, "] ", name, " ", axis, ": expected ", expected,
              " (from ", from, "), got ", size);
}

void check_bool(std::string_view where, std::string_view name, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "[", where, "] ", name,
              ": expected dtype Bool, got ", mask.scalar_type());
}

void check_device(std::string_view where, std::string_view name, const at::Tensor& tensor,
                  const at::Tensor& like) {
  TORCH_CHECK(tensor.device() == like.device(), "[", where, "] ", name, ": expected device ",
              like.device(), ", got ", tensor.device());
}

void check_broadcasts(std::string_view where, std::string_view name, const at::Tensor& tensor,
                      at::IntArrayRef shape, std::string_view advice) {
  TORCH_CHECK(at::is_expandable_to(tensor.sizes(), shape), "[", where, "] ", name, ": expected ",
              advice, ", got ", shape_text(tensor));
}

std::string shape_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace attn
