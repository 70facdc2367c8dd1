#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <attn/mask.h>
#include <c10/util/Exception.h>

#include "functional/checks.h"

namespace attn {
namespace {

void check_rank(std::string_view where, std::string_view name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && (tensor.dim() == 2 || tensor.dim() == 4), "[", where, "] ", name,
              ": expected [L, S] or [B|1, H|1, L|1, S|1], got ", shape_text(tensor));
}

void check_bool_mask(std::string_view where, std::string_view name, const at::Tensor& tensor) {
  check_rank(where, name, tensor);
  check_bool(where, name, tensor);
}

/// One of the two where the other is undefined, else `both` of them.
template <class Combine>
at::Tensor merge(const at::Tensor& a, const at::Tensor& b, Combine both) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  TORCH_CHECK(at::are_expandable(a.sizes(), b.sizes()),
              "[Mask] &: expected shapes that broadcast, got ", shape_text(a), " and ",
              shape_text(b));
  check_device("Mask", "&", b, a);
  return both(a, b);
}

}  // namespace

Mask Mask::none() { return Mask(); }

Mask Mask::causal() {
  Mask mask;
  mask.causal_ = true;
  return mask;
}

Mask Mask::causal_bottom_right() {
  Mask mask;
  mask.causal_bottom_right_ = true;
  return mask;
}

Mask Mask::attend(const at::Tensor& open) {
  check_bool_mask("Mask::attend", "open", open);
  Mask mask;
  mask.attend_ = open;
  return mask;
}

Mask Mask::block(const at::Tensor& blocked) {
  check_bool_mask("Mask::block", "blocked", blocked);
  Mask mask;
  mask.block_ = blocked;
  return mask;
}

Mask Mask::bias(const at::Tensor& bias) {
  check_rank("Mask::bias", "bias", bias);
  TORCH_CHECK(at::isFloatingType(bias.scalar_type()),
              "[Mask::bias] bias: expected a floating dtype, got ", bias.scalar_type());
  Mask mask;
  mask.bias_ = bias;
  return mask;
}

Mask operator&(const Mask& a, const Mask& b) {
  Mask mask;
  mask.causal_ = a.causal_ || b.causal_;
  mask.causal_bottom_right_ = a.causal_bottom_right_ || b.causal_bottom_right_;
  mask.attend_ =
      merge(a.attend_, b.attend_, [](const auto& x, const auto& y) { return x.logical_and(y); });
  mask.block_ =
      merge(a.block_, b.block_, [](const auto& x, const auto& y) { return x.logical_or(y); });
  mask.bias_ = merge(a.bias_, b.bias_, [](const auto& x, const auto& y) { return x + y; });
  return mask;
}

bool Mask::is_none() const {
  return !causal_ && !causal_bottom_right_ && !attend_.defined() && !block_.defined() &&
         !bias_.defined();
}

}  // namespace attn
