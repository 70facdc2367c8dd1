#include <ATen/ops/zeros.h>

#include "weights/layouts/layout.h"

namespace attn::layouts {
namespace {

at::Tensor bias_of(const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? bias : at::zeros({weight.size(0)}, weight.options());
}

}  // namespace

NamedTensors causal(const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                    const at::Tensor& out_weight, const at::Tensor& out_bias) {
  return {{"W_QKV.weight", qkv_weight},
          {"W_QKV.bias", bias_of(qkv_weight, qkv_bias)},
          {"W_O.weight", out_weight},
          {"W_O.bias", bias_of(out_weight, out_bias)}};
}

}  // namespace attn::layouts
