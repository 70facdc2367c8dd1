#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <optional>
#include <string>

/// Deep copies without `Cloneable::clone`, which runs `reset` first and so draws random numbers, and
/// which forgets `requires_grad`.
namespace attn {

/// LibTorch keeps a module's parameters from others than its subclasses.
struct ParameterAccess : torch::nn::Module {
  static torch::OrderedDict<std::string, at::Tensor>& of(torch::nn::Module& module) {
    return module.*(&ParameterAccess::parameters_);
  }
};

/// A deep copy of a linear map.
inline torch::nn::Linear clone_map(const torch::nn::Linear& map,
                                   const std::optional<torch::Device>& device) {
  const at::NoGradGuard no_grad;
  torch::nn::Linear copy(std::make_shared<torch::nn::LinearImpl>(*map));
  for (auto& item : ParameterAccess::of(*copy)) {
    at::Tensor& parameter = item.value();
    if (!parameter.defined()) continue;  // the bias of a map without one
    const bool requires_grad = parameter.requires_grad();
    parameter = device ? parameter.to(*device, parameter.scalar_type(), false, /*copy=*/true)
                       : parameter.clone();
    parameter.set_requires_grad(requires_grad);
    (item.key() == "weight" ? copy->weight : copy->bias) = parameter;
  }
  return copy;
}

/// A deep copy of a module that clones itself without drawing.
template <class Holder>
Holder clone_child(const Holder& child, const std::optional<torch::Device>& device) {
  return Holder(std::dynamic_pointer_cast<typename Holder::ContainedType>(child->clone(device)));
}

}  // namespace attn
