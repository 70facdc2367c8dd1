#include "bench/pass.h"

#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

namespace attn::bench {
namespace {

std::vector<at::Tensor> gradients(const at::Tensor& output, const Leaves& leaves,
                                  bool retain_graph) {
  return torch::autograd::grad({output}, leaves.inputs, {leaves.incoming}, retain_graph);
}

}  // namespace

Leaves make_leaves(Pass pass, std::vector<at::Tensor> inputs, at::IntArrayRef output_sizes) {
  if (pass == Pass::kForward) return {};
  for (const at::Tensor& input : inputs) input.requires_grad_();
  at::Tensor incoming = at::randn(output_sizes).to(inputs.front().scalar_type());
  return {std::move(inputs), std::move(incoming)};
}

Call call_of(Pass pass, Forward forward, const Leaves& leaves) {
  switch (pass) {
    case Pass::kForward:
      return [forward = std::move(forward)] { return Tensors{forward()}; };
    case Pass::kBackward:
      return [output = forward(), leaves] {
        const auto found = gradients(output, leaves, /*retain_graph=*/true);
        return Tensors(found.begin(), found.end());
      };
    case Pass::kStep:
      return [forward = std::move(forward), leaves] {
        const at::Tensor output = forward();
        Tensors all = {output.detach()};
        const auto found = gradients(output, leaves, /*retain_graph=*/false);
        all.append(found.begin(), found.end());
        return all;
      };
  }
  return {};
}

}  // namespace attn::bench
