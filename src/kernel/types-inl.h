// From an element type at run time to types of the compiler.

#if defined(ATTN_KERNEL_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_TYPES_INL_H_
#undef ATTN_KERNEL_TYPES_INL_H_
#else
#define ATTN_KERNEL_TYPES_INL_H_
#endif

#include "kernel/attention.h"
#include "kernel/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Calls body(T(), E()) for the problem's type of the sums T and of the elements E.
template <class Body>
HWY_INLINE auto with_types(const Problem& p, Body body) {
  switch (p.element) {
    case Element::kFloat64:
      return body(double(), double());
    case Element::kBFloat16:
      return body(float(), BFloat16());
    case Element::kFloat16:
      return body(float(), Float16());
    default:
      return body(float(), float());
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_TYPES_INL_H_
