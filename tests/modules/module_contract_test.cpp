// What every module of LibTorch does, and what these do better: clone, to, train, print, save, load,
// stand in a Sequential.

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <attn/attn.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "support/files.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::error_of;
using testing::waves;
using Names = std::vector<std::string>;

const at::Tensor& input() {
  static const at::Tensor x = waves({2, 5, 8}, 0.7, 0.1, at::kFloat);
  return x;
}

struct Xavier {
  using Module = XavierMultiheadAttention;
  static Module make() {
    return Module(XavierMultiheadAttentionOptions(8, 8, 4, 8, 2).attn_dropout(0.5));
  }
  static at::Tensor run(Module& module, const at::Tensor& x) {
    return std::get<0>(module(x, x, x));
  }
  static Names parameters() { return {"Q.weight", "K.weight", "V.weight", "Wo.weight", "Wo.bias"}; }
  static Names children() { return {"Q", "K", "V", "Wo", "attn_dropout"}; }
  static constexpr const char* kText =
      "attn::XavierMultiheadAttention(in_dim=8, qk_dim=8, v_dim=4, out_dim=8, n_heads=2, "
      "attn_dropout=0.5)";
};

struct Einsum {
  using Module = EinsumMultiheadAttention;
  static Module make() { return Module(8, 2); }
  static at::Tensor run(Module& module, const at::Tensor& x) { return module(x, x, x); }
  static Names parameters() {
    return {"values.weight", "keys.weight", "queries.weight", "fc_out.weight", "fc_out.bias"};
  }
  static Names children() { return {"values", "keys", "queries", "fc_out"}; }
  static constexpr const char* kText = "attn::EinsumMultiheadAttention(embed_size=8, num_heads=2)";
};

struct Preprojected {
  using Module = PreprojectedMultiheadAttention;
  static Module make() { return Module(ProjectedMultiheadAttentionOptions(8).n_heads(2)); }
  static at::Tensor run(Module& module, const at::Tensor& x) { return module(x, x, x); }
  static Names parameters() { return {"project_out.weight"}; }
  static Names children() { return {"attentionScore", "project_out"}; }
  static constexpr const char* kText =
      "attn::PreprojectedMultiheadAttention(embedding_dim=8, n_heads=2)";
};

struct Projected {
  using Module = ProjectedMultiheadAttention;
  static Module make() { return Module(ProjectedMultiheadAttentionOptions(8).n_heads(2)); }
  static at::Tensor run(Module& module, const at::Tensor& x) { return module(x); }
  static Names parameters() {
    return {"queryEncoder.weight", "keyEncoder.weight", "valueEncoder.weight",
            "MHA.project_out.weight"};
  }
  static Names children() { return {"queryEncoder", "keyEncoder", "valueEncoder", "MHA"}; }
  static constexpr const char* kText =
      "attn::ProjectedMultiheadAttention(embedding_dim=8, n_heads=2)";
};

struct Causal {
  using Module = CausalMultiheadAttention;
  static Module make() { return Module(8, 2); }
  static at::Tensor run(Module& module, const at::Tensor& x) { return module(x); }
  static Names parameters() { return {"W_QKV.weight", "W_QKV.bias", "W_O.weight", "W_O.bias"}; }
  static Names children() { return {"W_QKV", "W_O"}; }
  static constexpr const char* kText = "attn::CausalMultiheadAttention(hidden_size=8, num_heads=2)";
};

template <class Kind>
struct ModuleContract : ::testing::Test {
  typename Kind::Module module = Kind::make();

  at::Tensor run() { return Kind::run(module, input()); }

  static typename Kind::Module clone_of(const typename Kind::Module& original) {
    return typename Kind::Module(
        std::dynamic_pointer_cast<typename Kind::Module::ContainedType>(original->clone()));
  }
};

using Kinds = ::testing::Types<Xavier, Einsum, Preprojected, Projected, Causal>;
TYPED_TEST_SUITE(ModuleContract, Kinds);

TYPED_TEST(ModuleContract, HasTheDocumentsNamesInTheDocumentsOrder) {
  EXPECT_EQ(this->module->named_parameters().keys(), TypeParam::parameters());
  EXPECT_EQ(this->module->named_children().keys(), TypeParam::children());
  EXPECT_TRUE(this->module->named_buffers().is_empty());
}

TYPED_TEST(ModuleContract, PrintsItsOptions) {
  std::ostringstream text;
  this->module->pretty_print(text);
  EXPECT_EQ(text.str(), TypeParam::kText);
}

TYPED_TEST(ModuleContract, ClonesDeeply) {
  this->module->eval();
  auto copy = this->clone_of(this->module);
  EXPECT_TRUE(at::equal(TypeParam::run(copy, input()), this->run()));
  const at::Tensor before = this->run();
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : copy->parameters()) parameter.zero_();
  }
  EXPECT_TRUE(at::equal(this->run(), before));
  EXPECT_FALSE(at::equal(TypeParam::run(copy, input()), before));
}

TYPED_TEST(ModuleContract, ClonesWithoutDrawingRandomNumbers) {
  torch::manual_seed(5);
  const at::Tensor expected = at::rand({4});
  torch::manual_seed(5);
  this->clone_of(this->module);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TYPED_TEST(ModuleContract, ClonesWhileAnotherThreadDraws) {
  // Cloneable::clone draws; putting the generator back would repeat what others drew meanwhile.
  torch::manual_seed(5);
  const at::Tensor expected = at::rand({2000}, at::kDouble);
  torch::manual_seed(5);
  std::atomic<bool> done = false;
  std::thread cloning([&] {
    while (!done) this->clone_of(this->module);
  });
  at::Tensor drawn = at::empty({2000}, at::kDouble);
  for (int64_t i = 0; i < 2000; ++i) drawn[i] = at::rand({1}, at::kDouble)[0];
  done = true;
  cloning.join();
  EXPECT_TRUE(at::equal(drawn, expected));
}

TYPED_TEST(ModuleContract, ClonesFlagsAndFrozenParameters) {
  this->module->eval();
  this->module->children().back()->train();
  this->module->parameters().front().set_requires_grad(false);
  this->module->to(at::kDouble);
  auto copy = this->clone_of(this->module);
  EXPECT_FALSE(copy->is_training());
  EXPECT_FALSE(copy->children().front()->is_training());
  EXPECT_TRUE(copy->children().back()->is_training());
  EXPECT_FALSE(copy->parameters().front().requires_grad());
  if (copy->parameters().size() > 1) {
    EXPECT_TRUE(copy->parameters().back().requires_grad());
  }
  EXPECT_EQ(copy->parameters().back().scalar_type(), at::kDouble);
}

TYPED_TEST(ModuleContract, ConvertsToEveryFloatingDtype) {
  this->module->eval();
  for (const auto dtype : {at::kDouble, at::kBFloat16, at::kHalf, at::kFloat}) {
    this->module->to(dtype);
    EXPECT_EQ(TypeParam::run(this->module, input().to(dtype)).scalar_type(), dtype);
  }
}

TYPED_TEST(ModuleContract, FollowsAutocastToBFloat16) {
  this->module->eval();
  const at::Tensor expected = this->run();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor actual = this->run();
  const std::string error = error_of([&] { TypeParam::run(this->module, input().to(at::kLong)); });
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(actual.scalar_type(), at::kBFloat16);
  // Inputs, maps, weights and outputs are rounded to 8 bits along sums of at most 8 terms below 1.
  EXPECT_TRUE(attn::testing::is_near(actual, expected, 8 * attn::testing::epsilon(at::kBFloat16)));
  EXPECT_NE(error.find("expected the dtype of the parameters, Float, got Long"), std::string::npos);
}

TYPED_TEST(ModuleContract, InfersShapesOnTheMetaDevice) {
  // to(at::kMeta) is not LibTorch's: its modules replace data in place, which meta tensors lack.
  typename TypeParam::Module meta(
      std::dynamic_pointer_cast<typename TypeParam::Module::ContainedType>(
          this->module->clone(at::kMeta)));
  EXPECT_EQ(TypeParam::run(meta, input().to(at::kMeta)).sizes(), input().sizes());
  EXPECT_TRUE(this->run().device().is_cpu());
}

TYPED_TEST(ModuleContract, SavesAndLoadsAsLibTorchDoes) {
  this->module->eval();
  std::stringstream archive;
  torch::save(this->module, archive);
  auto other = TypeParam::make();
  other->eval();
  torch::load(other, archive);
  EXPECT_TRUE(at::equal(TypeParam::run(other, input()), this->run()));
}

TYPED_TEST(ModuleContract, GivesTheSameValuesInEveryGradModeOnTheReference) {
  const BackendGuard guard(Backend::kReference);
  this->module->eval();
  const at::Tensor expected = this->run();
  EXPECT_TRUE(expected.requires_grad());
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(this->run(), expected));
    EXPECT_FALSE(this->run().requires_grad());
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(at::equal(this->run(), expected));
}

TYPED_TEST(ModuleContract, RunsEmptyBatchesAndLengthsWithGradientsOfZero) {
  this->module->eval();
  const std::vector<at::Tensor> empties = {input().narrow(0, 0, 0), input().narrow(1, 0, 0)};
  for (const at::Tensor& x : empties) {
    this->module->zero_grad();
    const at::Tensor out = TypeParam::run(this->module, x);
    EXPECT_EQ(out.sizes(), x.sizes());
    out.sum().backward();
    for (const auto& parameter : this->module->parameters()) {
      ASSERT_TRUE(parameter.grad().defined());
      EXPECT_EQ(parameter.grad().abs().sum().template item<double>(), 0.0);
    }
  }
}

TEST(ModuleContractSequential, ModulesOfOneInputStandInASequential) {
  torch::nn::Sequential layers(
      CausalMultiheadAttention(8, 2),
      ProjectedMultiheadAttention(ProjectedMultiheadAttentionOptions(8).n_heads(2)));
  EXPECT_EQ(layers->forward(input()).sizes(), input().sizes());
}

TEST(ModuleContractSequential, ModulesOfManyInputsTakeTheirDefaults) {
  const at::Tensor& x = input();
  torch::nn::AnyModule einsum(EinsumMultiheadAttention(8, 2));
  EXPECT_EQ(einsum.forward(x, x, x).sizes(), x.sizes());
  torch::nn::AnyModule score(AttentionScore{});
  EXPECT_EQ(score.forward(x, x).sizes(), at::IntArrayRef({2, 5, 5}));
  torch::nn::AnyModule preprojected(
      PreprojectedMultiheadAttention(ProjectedMultiheadAttentionOptions(8).n_heads(2)));
  EXPECT_EQ(preprojected.forward(x, x, x).sizes(), x.sizes());
  torch::nn::AnyModule xavier(XavierMultiheadAttention(8, 8, 8, 8, 2));
  using Result = std::tuple<at::Tensor, at::Tensor>;
  EXPECT_EQ(std::get<0>(xavier.forward<Result>(x, x, x)).sizes(), x.sizes());
}

TEST(ModuleContractScore, HasNoParametersAndPrintsItsOptions) {
  std::ostringstream text;
  text << AttentionScore(AttentionScoreOptions().use_tanh(true).C(2.5));
  EXPECT_EQ(text.str(), "attn::AttentionScore(use_tanh=true, C=2.5)");
  EXPECT_TRUE(AttentionScore()->parameters().empty());
}

}  // namespace
}  // namespace attn
