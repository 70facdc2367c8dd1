#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/cloneable.h>

#include <mutex>

namespace attn {

/// Puts LibTorch's CPU generator back to where it was.
class KeepGenerator {
 public:
  KeepGenerator() : generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~KeepGenerator() {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    generator_.set_state(state_);
  }
  KeepGenerator(const KeepGenerator&) = delete;
  KeepGenerator& operator=(const KeepGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// `Cloneable::clone` without its side effects: it re-runs `reset`, which draws random numbers, and
/// it forgets which parameters were frozen and which submodules were switched between training and
/// evaluation.
template <class Impl>
std::shared_ptr<torch::nn::Module> clone_faithfully(const Impl& module,
                                                    const std::optional<torch::Device>& device) {
  const KeepGenerator keep_generator;
  std::shared_ptr<torch::nn::Module> copy =
      module.torch::nn::template Cloneable<Impl>::clone(device);
  auto parameters = copy->named_parameters();
  for (const auto& parameter : module.named_parameters()) {
    parameters[parameter.key()].set_requires_grad(parameter.value().requires_grad());
  }
  auto children = copy->named_modules();
  for (const auto& child : module.named_modules()) {
    // train() reaches down, and parents come before their children, so that each ends with its own
    // flag.
    children[child.key()]->train(child.value()->is_training());
  }
  return copy;
}

}  // namespace attn
