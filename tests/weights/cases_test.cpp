#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sin.h>
#include <attn/modules/causal_multihead_attention.h>
#include <attn/modules/einsum_multihead_attention.h>
#include <attn/modules/projected_multihead_attention.h>
#include <attn/modules/xavier_multihead_attention.h>
#include <attn/weights.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/files.h"
#include "weights/projections.h"

/// Files as others reported them. Their numbers were read by PyTorch 2.13 and safetensors 0.8.
namespace attn {
namespace {

using testing::expect_refused;
using testing::says;
using testing::state_of;
using testing::test_data;
using Names = std::vector<std::string>;
using Sums = std::vector<double>;

/// W_QKV.weight, W_QKV.bias, W_O.weight, W_O.bias.
const Sums kCausal = {1.564715308137238, 0.5611001402139664, 0.007068591192364693,
                      0.044677406549453735};

std::string data(const std::string& name) { return test_data("weights/" + name); }

/// In double, where adding at most 192 numbers below 1 is off by less than 192 · 192 · 2^-53 < 5e-12.
void expect_sum(const at::Tensor& tensor, double expected, const std::string& name) {
  EXPECT_NEAR(tensor.to(at::kDouble).sum().item<double>(), expected, 5e-12) << name;
}

void expect_sums(const torch::nn::Module& module, const Sums& expected, const std::string& file) {
  const NamedTensors state = state_of(module);
  ASSERT_EQ(state.size(), expected.size()) << file;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(state[i].second.scalar_type(), at::kFloat);
    expect_sum(state[i].second, expected[i], file + ' ' + state[i].first);
  }
}

template <class Module>
void expect_loads(Module module, const std::string& file, const Sums& sums,
                  const LoadOptions& options = {}) {
  const LoadReport report = load_weights(module, data(file), options);
  EXPECT_EQ(report.loaded.size(), sums.size()) << file;
  expect_sums(*module, sums, file);
}

CausalMultiheadAttention causal() { return CausalMultiheadAttention(8, 2); }

TEST(Cases, AStateDictLoadsAsItIsAndFromACheckpoint) {
  expect_loads(causal(), "w01_ordereddict.pt", kCausal);
  expect_loads(causal(), "w01_nested.pt", kCausal, LoadOptions().prefix("model."));
  expect_loads(causal(), "w03_legacy.pt", kCausal);
}

TEST(Cases, WrappersOfTrainingAreStripped) {
  for (const char* number : {"0", "1", "2", "3", "4"})
    expect_loads(causal(), std::string("w04_prefix") + number + ".pt", kCausal);
}

TEST(Cases, ScriptedAndTracedModulesLoad) {
  expect_loads(EinsumMultiheadAttention(8, 2), "w02_scripted_001.ts",
               {0.17595408856868744, 0.8275547102093697, 1.7088081669062376, 0.35489754244918004,
                0.05904974788427353});
  expect_loads(ProjectedMultiheadAttention(ProjectedMultiheadAttentionOptions(8).n_heads(2)),
               "w02_traced_002.ts",
               {1.4268155936151743, 0.2713379757478833, 0.007068591192364693, 0.35489754244918004});
  expect_loads(causal(), "w02_traced_004.ts", kCausal);
}

TEST(Cases, ATraceOfTrainingHasTheWeightsOfOneOfEvaluation) {
  for (const char* file : {"w14_traced_eval_000.ts", "w14_traced_train_000.ts"}) {
    expect_loads(XavierMultiheadAttention(8, 8, 8, 8, 2), file,
                 {1.4268155936151743, 0.2713379757478833, 0.007068591192364693, 0.35489754244918004,
                  0.05904974788427353});
  }
}

TEST(Cases, OtherFloatsConvertByValue) {
  // float16 and bfloat16 are float32 exactly; the float64 file holds float32 numbers.
  expect_loads(causal(), "w06_float16.pt",
               {1.5640983581542969, 0.5614776611328125, 0.0067596435546875, 0.04443359375});
  expect_loads(causal(), "w06_bfloat16.pt",
               {1.5647735595703125, 0.56201171875, 0.0047607421875, 0.046875});
  expect_loads(causal(), "w06_float64.pt", kCausal);
}

TEST(Cases, IntegersDoNotBecomeFloats) {
  for (const bool strict : {true, false}) {
    const WeightsError error =
        expect_refused(causal(), data("w06_int64.pt"), LoadOptions().strict(strict));
    ASSERT_EQ(error.report().mismatched.size(), 1U);
    EXPECT_TRUE(says(error, "W_O.bias: expected [8] float32, got [8] int64"));
  }
}

TEST(Cases, AMissingBiasIsAnErrorThatNamesItOrReported) {
  const WeightsError error = expect_refused(causal(), data("w07_missing_bias.pt"));
  EXPECT_EQ(error.report().missing, Names{"W_QKV.bias"});
  EXPECT_TRUE(says(error, "W_QKV.bias"));
  CausalMultiheadAttention module = causal();
  const LoadReport report =
      load_weights(module, data("w07_missing_bias.pt"), LoadOptions().strict(false));
  EXPECT_EQ(report.missing, Names{"W_QKV.bias"});
  expect_sum(module->W_O->weight, kCausal[2], "W_O.weight");
}

TEST(Cases, NamesTooManyAreAnErrorThatNamesBothOrReported) {
  const Names extra = {"extra.weight", "bn.num_batches_tracked"};
  const WeightsError error = expect_refused(causal(), data("w07_extra.pt"));
  EXPECT_EQ(error.report().unexpected, extra);
  EXPECT_TRUE(says(error, extra[0]) && says(error, extra[1]));
  CausalMultiheadAttention module = causal();
  EXPECT_EQ(load_weights(module, data("w07_extra.pt"), LoadOptions().strict(false)).unexpected,
            extra);
  expect_sums(*module, kCausal, "w07_extra.pt");
}

TEST(Cases, AnotherShapeIsAnErrorWithBothShapes) {
  for (const auto& [file, text] : std::vector<std::pair<std::string, std::string>>{
           {"w07_shape.pt", "W_O.weight: expected [8, 8] float32, got [8, 4] float32"},
           {"w07_same_numel.pt", "W_O.weight: expected [8, 8] float32, got [64] float32"},
           {"w07_transposed.pt", "W_QKV.weight: expected [24, 8] float32, got [8, 24] float32"}}) {
    for (const bool strict : {true, false})
      EXPECT_TRUE(says(expect_refused(causal(), data(file), LoadOptions().strict(strict)), text));
  }
}

TEST(Cases, ViewsHaveTheirOffsetsAndStrides) {
  const std::vector<std::pair<std::string, double>> sums = {
      {"a", -3.614024704322219},  {"b", -1.7974952012300491}, {"at", 3.698696007952094},
      {"e", 2.3840319514274597},  {"q", 2.3572737220674753},  {"k", 2.9935329519212246},
      {"v", -1.6521106660366058}, {"p", 5.063446367159486}};
  const NamedTensors read = read_weights(data("w08_views.pt"));
  ASSERT_EQ(read.size(), sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_EQ(read[i].first, sums[i].first);
    expect_sum(read[i].second, sums[i].second, sums[i].first);
  }
}

struct TiedImpl : torch::nn::Cloneable<TiedImpl> {
  TiedImpl() { reset(); }
  void reset() override {
    const torch::nn::LinearOptions options = torch::nn::LinearOptions(8, 8).bias(false);
    W_O = register_module("W_O", torch::nn::Linear(options));
    W_other = register_module("W_other", torch::nn::Linear(options));
  }
  torch::nn::Linear W_O = nullptr, W_other = nullptr;
};
TORCH_MODULE(Tied);

TEST(Cases, ParametersLoadedFromTiedTensorsAreIndependent) {
  const Tied module;
  load_weights(module, data("w08_tied.pt"));
  expect_sums(*module, {2.3572737220674753, 2.3572737220674753}, "w08_tied.pt");
  module->W_O->weight.detach().zero_();
  expect_sum(module->W_other->weight, 2.3572737220674753, "W_other.weight");
}

TEST(Cases, AFlippedBitIsRefusedByItsChecksum) {
  const WeightsError error = expect_refused(causal(), data("w15_bitflip.pt"));
  EXPECT_TRUE(says(error, "tensor \"W_QKV.weight\"") && says(error, "checksum"));
}

TEST(Cases, AMultiheadAttentionOfTorchComputesTheSame) {
  CausalMultiheadAttention ours = causal();
  load_weights(ours, data("w16_nn_multihead.pt"), LoadOptions().layout("torch-multihead"));
  expect_sums(*ours, {1.6598746188683435, 0, -2.700253112707287, 0}, "w16_nn_multihead.pt");

  torch::nn::MultiheadAttention theirs(8, 2);
  load_weights(theirs, data("w16_nn_multihead.pt"));
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::sin(at::arange(80, at::kFloat) * 0.7).view({2, 5, 8});
  // LibTorch's module adds its mask, whatever its dtype.
  const at::Tensor blocked = at::full({5, 5}, -std::numeric_limits<float>::infinity()).triu(1);
  const at::Tensor y = x.transpose(0, 1);
  const at::Tensor expected =
      std::get<0>(theirs(y, y, y, at::Tensor(), /*need_weights=*/false, blocked)).transpose(0, 1);
  // Three products in a row of at most 8 terms of magnitude below 4: 3 · 8 · 4 · 2^-24 < 1e-5.
  EXPECT_TRUE(at::allclose(ours(x), expected, /*rtol=*/0, /*atol=*/1e-5));
}

TEST(Cases, ATensorSavedFromAGpuIsOnTheCpu) {
  const NamedTensors read = read_weights(data("w17_cuda_tag.pt"));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_TRUE(read[0].second.device().is_cpu());
  expect_sum(read[0].second, 2.512044444680214, "w");
}

}  // namespace
}  // namespace attn
