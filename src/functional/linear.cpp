#include "functional/linear.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <attn/functional.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <string_view>

#include "backend/tangent.h"

namespace attn {
namespace {

/// oneDNN's matrix product as LibTorch wraps it for its compiler. On AMD's CPUs MKL, behind
/// `at::linear`, stays with AVX2: 109 GFLOP/s in float32 on a Zen 5 core against 250 here.
constexpr std::string_view kOperator = "mkldnn::_linear_pointwise";
constexpr const char* kSchema =
    "mkldnn::_linear_pointwise(Tensor X, Tensor W, Tensor? B, str attr, Scalar?[] scalars, "
    "str? algorithm) -> Tensor Y";
using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                             std::string_view, c10::List<std::optional<at::Scalar>>,
                             std::optional<std::string_view>);
using Operator = c10::TypedOperatorHandle<Signature>;

/// Below these oneDNN's fixed cost, 8 µs a call against 1.5, is felt.
constexpr int64_t kLeastRows = 4;
constexpr int64_t kLeastFlops = 2'000'000;

/// LibTorch's own operator if this version has it with these arguments.
std::optional<Operator> find_operator() {
  const auto found = c10::Dispatcher::singleton().findSchema({std::string(kOperator), ""});
  if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  if (found->schema() != torch::jit::parseSchema(kSchema)) return std::nullopt;
  return found->typed<Signature>();
}

const std::optional<Operator>& onednn_linear() {
  static const std::optional<Operator> found = find_operator();
  return found;
}

/// Why this machine and LibTorch stay with `at::linear`, or null.
const char* machine_refusal() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512f")) return "this CPU has no AVX-512";
  if (__builtin_cpu_is("intel")) return "MKL uses an Intel CPU to the full";
#else
  return "no other was measured on this kind of CPU";
#endif
  if (!at::hasMKL()) return "this LibTorch multiplies without MKL";
  if (!onednn_linear()) return "this LibTorch does not offer oneDNN's";
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

bool records_gradient(const at::Tensor& tensor) {
  return has_tangent(tensor) || (at::GradMode::is_enabled() && tensor.requires_grad());
}

/// Whether a call would go to the CPU's kernel by way of nothing but autograd: no autocast, tracing,
/// vmap, lazy negation or other layer of the dispatcher that the operator may not know.
bool is_plain(const at::Tensor& tensor) {
  const c10::DispatchKeySet plain{c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                  c10::DispatchKey::ADInplaceOrView,
                                  c10::DispatchKey::BackendSelect};
  const c10::DispatchKeySet layers = c10::impl::computeDispatchKeySet(
      tensor.key_set(), c10::DispatchKeySet(c10::DispatchKeySet::FULL));
  return (layers - plain).highestFunctionalityKey() == c10::DispatchKey::Undefined;
}

/// Dense float32 on the CPU, with nothing to record and nothing to interpret.
bool is_ordinary(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat &&
         !records_gradient(tensor) && is_plain(tensor);
}

bool is_worth_it(const at::Tensor& x, const at::Tensor& weight) {
  const int64_t features = weight.size(1);
  if (x.dim() < 2 || features == 0 || x.size(-1) != features) return false;
  const int64_t rows = x.numel() / features;
  return rows >= kLeastRows && 2 * rows * weight.numel() >= kLeastFlops;
}

bool takes_onednn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto is_packed = [](const at::Tensor& parameter) {
    return is_ordinary(parameter) && parameter.is_contiguous();
  };
  return is_worth_it(x, weight) && is_ordinary(x) && is_packed(weight) &&
         (!bias.defined() || is_packed(bias)) && refusal() == nullptr;
}

}  // namespace

at::Tensor project(const torch::nn::Linear& map, const at::Tensor& x) {
  const at::Tensor& weight = map->weight;
  const at::Tensor& bias = map->bias;
  if (!takes_onednn(x, weight, bias)) return at::linear(x, weight, bias);
  const auto given = bias.defined() ? std::optional(bias) : std::nullopt;
  return onednn_linear()->call(x, weight, given, /*attr=*/"none",
                               /*scalars=*/c10::List<std::optional<at::Scalar>>(),
                               /*algorithm=*/"");
}

std::string projection_kernel() {
  if (const char* reason = refusal()) return std::string("LibTorch's linear (") + reason + ")";
  return "oneDNN (this CPU has AVX-512 and is not Intel's, where MKL stays with AVX2)";
}

}  // namespace attn
