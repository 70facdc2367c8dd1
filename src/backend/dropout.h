#pragma once

#include <ATen/core/Tensor.h>
#include <attn/export.h>

#include <cstdint>
#include <optional>

#include "backend/call.h"

/// The kernel's dropout (`kernel/dropout.h`) for the backends. It drops other weights than
/// `at::dropout`, which the reference uses, does from the same state of LibTorch's generator.
namespace attn {

/// How many of 65536 weights the kernel drops for a probability, which is thereby rounded.
uint32_t kernel_dropped(double p);

/// A seed of the kernel's dropout, from LibTorch's default generator for the CPU.
uint64_t draw_dropout_seed();

/// The seed by which the reference is to drop what the kernel would: that of the call, or one drawn
/// now where a `KernelDropoutGuard` asks for it; else none.
std::optional<uint64_t> kernel_seed_for_reference(const AttentionCall& call);

/// Weights [B|1, H, L, S] after the kernel's dropout. [B, H, L, S], for as many batches as asked for
at::Tensor drop_as_the_kernel(const at::Tensor& weights, int64_t batches, double p, uint64_t seed);

/// For tests: as long as it lives, the reference on this thread draws a seed as the fused backend does,
/// and drops what the kernel drops.
class ATTN_API KernelDropoutGuard {
 public:
  KernelDropoutGuard();
  ~KernelDropoutGuard();
  KernelDropoutGuard(const KernelDropoutGuard&) = delete;
  KernelDropoutGuard& operator=(const KernelDropoutGuard&) = delete;

 private:
  bool previous_;
};

}  // namespace attn
