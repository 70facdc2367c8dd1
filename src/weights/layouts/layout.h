#pragma once

#include <attn/weights.h>

#include "weights/layouts/source.h"

namespace attn::layouts {

/// A layer whose weights were judged and found right, ready for a conversion.
struct Checked {
  const Layer& layer;
  const Sizes& sizes;
  /// 0: not given.
  int64_t n_heads;

  const at::Tensor& operator[](std::string_view name) const { return layer[name]; }
};

struct Layout {
  /// Name, origin and target, as `weight_layouts` lists them.
  WeightLayout about;
  Source source;
  /// The symbol of the size that the heads divide.
  std::string_view split;
  /// Whether `convert` cannot do without `n_heads`.
  bool needs_heads = false;
  NamedTensors (*convert)(const Checked& layer) = nullptr;
  /// What all names of the layer may begin with, e.g. "attention.".
  std::string_view optional_prefix = "";
};

/// One for each family.
Layout attention_learn_to_route();
Layout bert();
Layout gpt2();
Layout gpt_neox();
Layout llama();
Layout nanogpt();
Layout to_torch_multihead();
Layout torch_multihead();

/// All of them, by name.
const std::vector<Layout>& all();

/// The names of `CausalMultiheadAttention` from weights as `torch::nn::Linear` has them; an undefined
/// bias becomes zeros, since the module always has biases.
NamedTensors causal(const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                    const at::Tensor& out_weight, const at::Tensor& out_bias);

}  // namespace attn::layouts
