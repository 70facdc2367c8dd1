#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <attn/weights.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <utility>
#include <vector>

#include "support/files.h"
#include "support/safetensors_writer.h"
#include "weights/projections.h"

namespace attn {
namespace {

using testing::expect_equal;
using testing::expect_refused;
using testing::fitting;
using testing::Projections;
using testing::safetensors_bytes;
using testing::says;
using testing::state_of;
using testing::TempFile;

TEST(LoadWeightsTensors, TakesHoldersModulesAndConstHolders) {
  const TempFile temp(safetensors_bytes({{"weight", at::ones({2, 3})}, {"bias", at::zeros({2})}}));
  const torch::nn::Linear holder(3, 2);
  load_weights(holder, temp.path());
  EXPECT_TRUE(at::equal(holder->weight, at::ones({2, 3})));
  torch::nn::LinearImpl module(3, 2);
  load_weights(module, temp.path());
  EXPECT_TRUE(at::equal(module.weight, at::ones({2, 3})));
  EXPECT_THROW(load_weights(torch::nn::Linear(nullptr), temp.path()), c10::Error);
}

TEST(LoadWeightsTensors, RoundsFloatingTypesIntoTheModulesOwn) {
  for (const at::ScalarType module_type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const at::ScalarType file_type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      NamedTensors file = fitting("", file_type);
      // A third has no end in binary: every conversion to a narrower type rounds.
      file[1].second.fill_(1.0 / 3.0);
      const TempFile temp(safetensors_bytes(file));
      Projections module;
      module->to(module_type);
      load_weights(module, temp.path());
      EXPECT_EQ(module->W_QKV->bias.scalar_type(), module_type);
      for (auto& [name, tensor] : file) tensor = tensor.to(module_type);
      expect_equal(state_of(*module), file);
    }
  }
}

TEST(LoadWeightsTensors, RefusesDataThatIsNoPlainFloatForAFloatingParameter) {
  const std::vector<std::pair<at::ScalarType, std::string>> types = {
      {at::kLong, "int64"},
      {at::kInt, "int32"},
      {at::kBool, "bool"},
      {at::kFloat8_e4m3fn, "float8_e4m3fn"}};
  for (const auto& [type, name] : types) {
    NamedTensors file = fitting();
    file[3].second = at::ones({8}).to(type);
    const WeightsError error = expect_refused(file, LoadOptions().strict(false));
    EXPECT_TRUE(says(error, "W_O.bias: expected [8] float32, got [8] " + name));
  }
}

TEST(LoadWeightsTensors, FillsBuffersAndKeepsTheirIntegers) {
  NamedTensors file = {{"weight", at::ones({3})},
                       {"bias", at::zeros({3})},
                       {"running_mean", at::full({3}, 2.0)},
                       {"running_var", at::full({3}, 4.0)},
                       {"num_batches_tracked", at::full({}, int64_t{1} << 40, at::kLong)}};
  const TempFile temp(safetensors_bytes(file));
  const torch::nn::BatchNorm1d module(3);
  load_weights(module, temp.path());
  expect_equal(state_of(*module), file);
  file[4].second = at::full({}, 7, at::kInt);
  const TempFile narrow(safetensors_bytes(file));
  const WeightsError error = expect_refused(module, narrow.path());
  EXPECT_TRUE(says(error, "num_batches_tracked: expected [] int64, got [] int32"));
}

TEST(LoadWeightsTensors, KeepsParametersAndWhatTheyRequire) {
  const TempFile temp(safetensors_bytes(fitting()));
  Projections module;
  module->W_O->bias.set_requires_grad(false);
  const void* place = module->W_QKV->weight.const_data_ptr();
  load_weights(module, temp.path());
  EXPECT_EQ(module->W_QKV->weight.const_data_ptr(), place)
      << "optimizers and views hold the same tensors";
  EXPECT_TRUE(module->W_QKV->weight.requires_grad());
  EXPECT_TRUE(module->W_QKV->weight.is_leaf());
  EXPECT_FALSE(module->W_O->bias.requires_grad());
}

TEST(LoadWeightsTensors, LeavesAModuleThatTrainsEvenInsideInferenceMode) {
  const TempFile temp(safetensors_bytes(fitting()));
  Projections module;
  {
    const c10::InferenceMode inference;
    load_weights(module, temp.path());
  }
  expect_equal(state_of(*module), fitting());
  for (const at::Tensor& parameter : module->parameters()) {
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_FALSE(parameter.is_inference());
  }
  module->forward(at::ones({2, 8})).sum().backward();
  EXPECT_TRUE(at::equal(module->W_O->bias.grad(), at::full({8}, 2.0)));
  EXPECT_TRUE(module->W_QKV->weight.grad().defined());
}

TEST(LoadWeightsTensors, FillsAModuleThatWasMadeInsideInferenceMode) {
  const TempFile temp(safetensors_bytes(fitting()));
  Projections module = nullptr;
  {
    const c10::InferenceMode inference;
    module = Projections();
  }
  load_weights(module, temp.path());
  expect_equal(state_of(*module), fitting());
}

TEST(LoadWeightsTensors, TellsAutogradThatTheWeightsChanged) {
  const TempFile temp(safetensors_bytes(fitting()));
  Projections module;
  const at::Tensor loss = module->forward(at::randn({2, 8}, at::requires_grad())).sum();
  load_weights(module, temp.path());
  EXPECT_THROW(loss.backward(), c10::Error) << "the old graph must not use the new weights";
}

TEST(LoadWeightsTensors, RefusesAModuleWhoseTensorsCannotTakeACopy) {
  const TempFile temp(safetensors_bytes({{"w", at::ones({2, 2})}}));
  const std::vector<std::pair<at::Tensor, std::string>> tensors = {
      {at::empty({2, 2}, at::kMeta), "expected [2, 2] float32 without data"},
      {at::zeros({2, 2}).to_sparse(), "expected [2, 2] float32 Sparse, got [2, 2] float32"},
      {at::zeros({1}).expand({2, 2}), "expected [2, 2] float32 expanded, got [2, 2] float32"}};
  for (const auto& [tensor, text] : tensors) {
    torch::nn::Module module;
    module.register_buffer("w", tensor);
    try {
      load_weights(module, temp.path());
      ADD_FAILURE() << text;
    } catch (const WeightsError& error) {
      EXPECT_TRUE(says(error, text));
    }
  }
}

}  // namespace
}  // namespace attn
