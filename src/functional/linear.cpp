#include "functional/linear.h"

#include <ATen/Context.h>
#include <ATen/ops/linear.h>
#include <attn/functional.h>

#include "functional/onednn_linear.h"

namespace attn {
namespace {

/// Why this machine and LibTorch stay with `at::linear`, or null.
const char* machine_refusal() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f")) return "this CPU has no AVX-512";
  if (__builtin_cpu_is("intel")) return "MKL uses an Intel CPU to the full";
#else
  return "no other was measured on this kind of CPU";
#endif
  if (!at::hasMKL()) return "this LibTorch multiplies without MKL";
  if (!has_onednn_linear()) return "this LibTorch does not offer oneDNN's";
  return nullptr;
}

/// Why this thread does now, or null.
const char* thread_refusal() {
  const Backend backend = default_backend();
  if (backend == Backend::kReference || backend == Backend::kLibTorch) {
    return "the default backend keeps its bits";
  }
  if (!at::globalContext().userEnabledMkldnn()) return "oneDNN is switched off";
  return nullptr;
}

const char* refusal() {
  static const char* const machine = machine_refusal();
  return machine != nullptr ? machine : thread_refusal();
}

bool takes_onednn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto is_packed = [](const at::Tensor& parameter) {
    return is_plain_float(parameter) && parameter.is_contiguous();
  };
  return gains_by_onednn(x, weight, bias) && is_plain_float(x) && is_packed(weight) &&
         (!bias.defined() || is_packed(bias)) && refusal() == nullptr;
}

}  // namespace

at::Tensor project(const torch::nn::Linear& map, const at::Tensor& x) {
  const at::Tensor& weight = map->weight;
  const at::Tensor& bias = map->bias;
  return takes_onednn(x, weight, bias) ? onednn_linear(x, weight, bias)
                                       : at::linear(x, weight, bias);
}

std::string projection_kernel() {
  if (const char* reason = refusal()) return std::string("LibTorch's linear (") + reason + ")";
  return "oneDNN (this CPU has AVX-512 and is not Intel's, where MKL stays with AVX2)";
}

}  // namespace attn
