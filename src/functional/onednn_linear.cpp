#include "functional/onednn_linear.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <algorithm>
#include <string_view>

#include "backend/tangent.h"

namespace attn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

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

/// Below these oneDNN's fixed cost, 8 µs a call against 1.5, is felt; so is a size of 1 or 2.
constexpr int64_t kLeastSize = 4;
constexpr int64_t kLeastFlops = 2'000'000;
/// In training. oneDNN remembers some 500 products; when batches are of more lengths than that, every
/// one of a step's three products for each map is prepared anew, at 175 µs. From here on it gains even so.
constexpr int64_t kLeastFlopsInTraining = 32'000'000;

/// LibTorch's own operator if this version has it with these arguments.
std::optional<Operator> find_operator() {
  const auto found = c10::Dispatcher::singleton().findSchema({std::string(kOperator), ""});
  if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  if (found->schema() != torch::jit::parseSchema(kSchema)) return std::nullopt;
  return found->typed<Signature>();
}

const std::optional<Operator>& onednn_operator() {
  static const std::optional<Operator> found = find_operator();
  return found;
}

/// x · Wᵀ + b with nothing recorded; x of any strides, W contiguous or the transpose of such.
at::Tensor call_onednn(const at::Tensor& x, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias) {
  return onednn_operator()->call(x, weight, bias, /*attr=*/"none",
                                 /*scalars=*/c10::List<std::optional<at::Scalar>>(),
                                 /*algorithm=*/"");
}

/// For [rows, depth] · [depth, columns].
bool gains(int64_t rows, int64_t depth, int64_t columns, int64_t least_flops) {
  return std::min({rows, depth, columns}) >= kLeastSize &&
         2 * rows * depth * columns >= least_flops;
}

bool is_recorded(const at::Tensor& tensor) {
  return at::GradMode::is_enabled() && tensor.requires_grad();
}

bool is_training(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return is_recorded(x) || is_recorded(weight) || (bias.defined() && is_recorded(bias));
}

/// a · b for a gradient, differentiable where it has to be. oneDNN copies `a` into order, but leaves a
/// `b` with gaps or overlaps to a reference that takes seconds.
at::Tensor differentiable_product(const at::Tensor& a, const at::Tensor& b) {
  const auto is_numbers = [](const at::Tensor& tensor) {
    return is_plain_float(tensor) && !is_recorded(tensor);
  };
  const bool by_onednn = gains(a.size(0), a.size(1), b.size(1), kLeastFlopsInTraining) &&
                         is_numbers(a) && is_numbers(b);
  return by_onednn ? call_onednn(a, b.contiguous().t(), std::nullopt) : at::mm(a, b);
}

class OnednnLinear : public torch::autograd::Function<OnednnLinear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias) {
    // Each is kept for the gradient of the other.
    context->save_for_backward(
        {weight.requires_grad() ? x : at::Tensor(), x.requires_grad() ? weight : at::Tensor()});
    context->saved_data[kHasBias] = bias.has_value();
    context->set_materialize_grads(false);
    return call_onednn(x, weight, bias);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    tensor_list result(kArguments);
    if (!gradients[0].defined()) return result;
    const tensor_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor dy = gradients[0].flatten(0, -2);  // [rows, out features]
    if (weight.defined() && context->needs_input_grad(kX)) {
      std::vector<int64_t> sizes = gradients[0].sizes().vec();
      sizes.back() = weight.size(1);
      result[kX] = differentiable_product(dy, weight).reshape(sizes);
    }
    if (x.defined() && context->needs_input_grad(kWeight)) {
      result[kWeight] = differentiable_product(dy.t(), x.flatten(0, -2));
    }
    if (context->saved_data[kHasBias].toBool() && context->needs_input_grad(kBias)) {
      result[kBias] = dy.sum(0);
    }
    return result;
  }

 private:
  enum Argument : size_t { kX, kWeight, kBias, kArguments };
  static constexpr const char* kHasBias = "has bias";
};

}  // namespace

bool has_onednn_linear() { return onednn_operator().has_value(); }

bool is_plain_float(const at::Tensor& tensor) {
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || tensor.scalar_type() != at::kFloat ||
      has_tangent(tensor)) {
    return false;
  }
  const c10::DispatchKeySet plain{c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                  c10::DispatchKey::ADInplaceOrView,
                                  c10::DispatchKey::BackendSelect};
  const c10::DispatchKeySet layers = c10::impl::computeDispatchKeySet(
      tensor.key_set(), c10::DispatchKeySet(c10::DispatchKeySet::FULL));
  return (layers - plain).highestFunctionalityKey() == c10::DispatchKey::Undefined;
}

bool gains_by_onednn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const int64_t features = weight.size(1);
  if (x.dim() < 2 || features == 0 || x.size(-1) != features) return false;
  return gains(x.numel() / features, features, weight.size(0),
               is_training(x, weight, bias) ? kLeastFlopsInTraining : kLeastFlops);
}

at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto given = bias.defined() ? std::optional(bias) : std::nullopt;
  return is_training(x, weight, bias) ? OnednnLinear::apply(x, weight, given)
                                      : call_onednn(x, weight, given);
}

}  // namespace attn
