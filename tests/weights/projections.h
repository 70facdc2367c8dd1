#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <attn/weights.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include <string>

#include "support/files.h"
#include "support/safetensors_writer.h"

/// A small module for the tests of loading, and what they ask of it.
namespace attn::testing {

/// The parameters of a causal module of 8 features, as traced.ts holds them.
struct ProjectionsImpl : torch::nn::Cloneable<ProjectionsImpl> {
  ProjectionsImpl() { reset(); }
  void reset() override {
    W_QKV = register_module("W_QKV", torch::nn::Linear(8, 24));
    W_O = register_module("W_O", torch::nn::Linear(8, 8));
  }
  at::Tensor forward(const at::Tensor& x) { return W_O(W_QKV(x).narrow(-1, 0, 8)); }
  torch::nn::Linear W_QKV = nullptr, W_O = nullptr;
};
TORCH_MODULE(Projections);

/// Tensors that fit Projections, each with its own values.
inline NamedTensors fitting(const std::string& prefix = "", at::ScalarType dtype = at::kFloat) {
  const at::TensorOptions options(dtype);
  return {{prefix + "W_QKV.weight", at::arange(192, options).view({24, 8})},
          {prefix + "W_QKV.bias", at::full({24}, 0.5, options)},
          {prefix + "W_O.weight", at::arange(64, options).view({8, 8})},
          {prefix + "W_O.bias", at::full({8}, -3, options)}};
}

inline NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& item : module.named_parameters())
    state.emplace_back(item.key(), item.value().detach().clone());
  for (const auto& item : module.named_buffers())
    state.emplace_back(item.key(), item.value().clone());
  return state;
}

inline void expect_equal(const NamedTensors& got, const NamedTensors& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, expected[i].first);
    EXPECT_TRUE(at::equal(got[i].second, expected[i].second)) << got[i].first;
  }
}

/// Loading must fail and leave every bit of the module as it was.
template <class Holder>
WeightsError expect_refused(const Holder& module, const std::string& path,
                            const LoadOptions& options = {}) {
  const NamedTensors before = state_of(*module);
  try {
    load_weights(module, path, options);
  } catch (const WeightsError& error) {
    expect_equal(state_of(*module), before);
    EXPECT_TRUE(error.report().loaded.empty());
    return error;
  }
  ADD_FAILURE() << "loaded " << path;
  return WeightsError("");
}

inline WeightsError expect_refused(const NamedTensors& file, const LoadOptions& options = {}) {
  const TempFile temp(safetensors_bytes(file));
  return expect_refused(Projections(), temp.path(), options);
}

inline ::testing::AssertionResult says(const WeightsError& error, const std::string& part) {
  if (std::string(error.what()).find(part) != std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << error.what() << "\nlacks: " << part;
}

}  // namespace attn::testing
