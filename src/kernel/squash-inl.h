// C·tanh(u) and C·tanh(u / C) of scaled logits.

#if defined(ATTN_KERNEL_SQUASH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_SQUASH_INL_H_
#undef ATTN_KERNEL_SQUASH_INL_H_
#else
#define ATTN_KERNEL_SQUASH_INL_H_
#endif

#include "kernel/attention.h"
#include "kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// n is a multiple of the lanes.
template <class T>
HWY_NOINLINE void squash(const Problem& p, int64_t n, T* HWY_RESTRICT logits) {
  const Tag<T> d;
  const Vec<T> limit = hn::Set(d, static_cast<T>(p.squash_limit));
  const Vec<T> inner =
      hn::Set(d, p.squash == Squash::kSoftcap ? static_cast<T>(1.0 / p.squash_limit) : T(1));
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    const Vec<T> u = hn::Mul(inner, hn::Load(d, logits + i));
    hn::Store(hn::Mul(limit, tanh<T>(d, u)), d, logits + i);
  }
}

/// The derivative of the squash where it gave these logits: 1 − tanh², times C for a clip.
template <class T>
HWY_NOINLINE void squash_slope(const Problem& p, int64_t n, const T* HWY_RESTRICT logits,
                               T* HWY_RESTRICT slope) {
  const Tag<T> d;
  const Vec<T> limit = hn::Set(d, static_cast<T>(p.squash_limit));
  const Vec<T> one = hn::Set(d, T(1));
  const Vec<T> outer =
      hn::Set(d, p.squash == Squash::kClip ? static_cast<T>(p.squash_limit) : T(1));
  for (int64_t i = 0; i < n; i += kLanes<T>) {
    const Vec<T> tanh = hn::Div(hn::Load(d, logits + i), limit);  // exactly 1 at the limit
    hn::Store(hn::Mul(outer, hn::NegMulAdd(tanh, tanh, one)), d, slope + i);
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_SQUASH_INL_H_
