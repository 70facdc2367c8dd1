#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

/// Refusals that modules and functions share. Each throws `c10::Error` "[where] argument: expected
/// …, got …".
namespace attn {

/// A size of an option with its name.
using NamedSize = std::pair<std::string_view, int64_t>;

/// Every size is at least 1.
void check_positive(std::string_view where, std::initializer_list<NamedSize> sizes);
/// `heads` divides `size`; both are positive.
void check_divisible(std::string_view where, NamedSize size, NamedSize heads);
/// `p` lies in [0, 1].
void check_probability(std::string_view where, std::string_view name, double p);

/// `tensor` is defined and its shape fits `expected`, a pattern in which −1 stands for any size,
/// shown as `layout`.
void check_shape(std::string_view where, std::string_view name, const at::Tensor& tensor,
                 at::IntArrayRef expected, std::string_view layout);
/// The tensor's dtype (outside autocast, which converts) and device are those of `like`, which is
/// called `like_name`.
void check_like(std::string_view where, std::string_view name, const at::Tensor& tensor,
                std::string_view like_name, const at::Tensor& like);
/// The size of an axis, called e.g. "batch" or "length", equals `expected`, that of the argument
/// `from`.
void check_size(std::string_view where, std::string_view name, std::string_view axis, int64_t size,
                int64_t expected, std::string_view from);
/// The mask's dtype is bool.
void check_bool(std::string_view where, std::string_view name, const at::Tensor& mask);
/// The tensor lies on the device of `like`.
void check_device(std::string_view where, std::string_view name, const at::Tensor& tensor,
                  const at::Tensor& like);
/// The tensor broadcasts to `shape`; `advice` says what is taken and how to pass the rest.
void check_broadcasts(std::string_view where, std::string_view name, const at::Tensor& tensor,
                      at::IntArrayRef shape, std::string_view advice);

/// "[2, 3, 4]", or "an undefined tensor".
std::string shape_text(const at::Tensor& tensor);

}  // namespace attn
