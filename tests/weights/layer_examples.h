#pragma once

#include <ATen/ops/cat.h>
#include <attn/weights.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/tensors.h"

/// Layers as the files of others hold them, for the tests of layouts.
namespace attn::testing {

/// A tensor of its own numbers for each n.
inline at::Tensor numbers(at::IntArrayRef shape, int n) {
  return waves(shape, 0.37 + 0.11 * n, 0.2 * n);
}

/// The weights of a layer in a layout's source: 12 features, 3 heads of 4, which llama groups by 3.
inline NamedTensors example_of(const std::string& layout) {
  NamedTensors tensors;
  const auto add = [&](const std::string& name, at::IntArrayRef shape) {
    tensors.emplace_back(name, numbers(shape, static_cast<int>(tensors.size())));
  };
  if (layout == "attention-learn-to-route") {
    for (const char* name : {"W_query", "W_key", "W_val"}) add(name, {3, 12, 4});
    add("W_out", {3, 4, 12});
  } else if (layout == "bert") {
    for (const char* name : {"self.query", "self.key", "self.value", "output.dense"}) {
      add(name + std::string(".weight"), {12, 12});
      add(name + std::string(".bias"), {12});
    }
  } else if (layout == "llama") {
    add("q_proj.weight", {12, 12});
    add("k_proj.weight", {4, 12});
    add("v_proj.weight", {4, 12});
    add("o_proj.weight", {12, 12});
  } else if (layout == "gpt2" || layout == "nanogpt") {
    add("c_attn.weight", layout == "gpt2" ? at::IntArrayRef{12, 36} : at::IntArrayRef{36, 12});
    add("c_attn.bias", {36});
    add("c_proj.weight", {12, 12});
    add("c_proj.bias", {12});
  } else if (layout == "gpt-neox") {
    add("query_key_value.weight", {36, 12});
    add("query_key_value.bias", {36});
    add("dense.weight", {12, 12});
    add("dense.bias", {12});
  } else if (layout == "torch-multihead") {
    add("in_proj_weight", {36, 12});
    add("in_proj_bias", {36});
    add("out_proj.weight", {12, 12});
    add("out_proj.bias", {12});
  } else if (layout == "to-torch-multihead") {
    add("W_QKV.weight", {36, 12});
    add("W_QKV.bias", {36});
    add("W_O.weight", {12, 12});
    add("W_O.bias", {12});
  } else {
    ADD_FAILURE() << "no example of " << layout;
  }
  return tensors;
}

inline at::Tensor& tensor_of(NamedTensors& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
  if (found == tensors.end()) throw std::out_of_range(name);
  return found->second;
}

inline NamedTensors without(NamedTensors tensors, const std::string& ending) {
  std::erase_if(tensors, [&](const auto& item) { return item.first.ends_with(ending); });
  return tensors;
}

/// The module in float64 with these weights, all of them and no others.
template <class Holder>
Holder filled(Holder module, const NamedTensors& weights) {
  const at::NoGradGuard no_grad;
  module->to(at::kDouble);
  auto parameters = module->named_parameters();
  EXPECT_EQ(parameters.size(), weights.size());
  for (const auto& [name, tensor] : weights) {
    EXPECT_EQ(parameters[name].sizes(), tensor.sizes()) << name;
    parameters[name].copy_(tensor);
  }
  return module;
}

/// softmax(q kᵀ / √D) v of one head, [L, D] each; causal: query i sees the keys k ≤ i.
inline at::Tensor plain_head(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             bool causal) {
  at::Tensor logits = q.matmul(k.t()).div(std::sqrt(static_cast<double>(q.size(1))));
  if (causal) {
    logits = logits.masked_fill(lower_triangle(q.size(0), k.size(0)).logical_not(),
                                -std::numeric_limits<double>::infinity());
  }
  return logits.softmax(-1).matmul(v);
}

/// The heads one after the other on slices of the features, [L, H·D].
inline at::Tensor plain_heads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              int64_t heads, bool causal) {
  std::vector<at::Tensor> outputs;
  const int64_t size = q.size(1) / heads;
  for (int64_t h = 0; h < heads; ++h) {
    const auto slice = [&](const at::Tensor& x) { return x.narrow(1, h * size, size); };
    outputs.push_back(plain_head(slice(q), slice(k), slice(v), causal));
  }
  return at::cat(outputs, 1);
}

}  // namespace attn::testing
