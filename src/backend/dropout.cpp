#include "backend/dropout.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <mutex>
#include <utility>

#include "kernel/dropout.h"

namespace attn {
namespace {

thread_local bool reference_drops_as_the_kernel = false;

}  // namespace

uint32_t kernel_dropped(double p) { return static_cast<uint32_t>(std::lround(p * 65536.0)); }

uint64_t draw_dropout_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

std::optional<uint64_t> kernel_seed_for_reference(const AttentionCall& call) {
  if (call.dropout_seed || !reference_drops_as_the_kernel) return call.dropout_seed;
  return draw_dropout_seed();
}

at::Tensor drop_as_the_kernel(const at::Tensor& weights, int64_t batches, double p, uint64_t seed) {
  const int64_t heads = weights.size(1), queries = weights.size(2), keys = weights.size(3);
  kernel::Problem problem;
  problem.heads = heads;
  problem.dropped = kernel_dropped(p);
  problem.dropout_seed = seed;
  const at::Tensor kept = at::empty({batches, heads, queries, keys}, at::kBool);
  bool* keeps = kept.mutable_data_ptr<bool>();
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < queries; ++i) {
        for (int64_t j = 0; j < keys; ++j) *keeps++ = kernel::keeps_weight(problem, b, h, i, j);
      }
    }
  }
  return weights.mul(kept.to(weights.device())).mul(kernel::dropout_scale(problem));
}

KernelDropoutGuard::KernelDropoutGuard()
    : previous_(std::exchange(reference_drops_as_the_kernel, true)) {}

KernelDropoutGuard::~KernelDropoutGuard() { reference_drops_as_the_kernel = previous_; }

}  // namespace attn
