// Training the modules on the fused backend, which they take by default: the documents' numbers, the bugs
// that users of other code reported (the number is that of their collection), and a loss curve.

#include <ATen/ops/as_strided.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <attn/attn.h>
#include <backend/dropout.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "support/recorded_operators.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::fill_with_waves;
using testing::is_near;
using testing::operators_during;
using testing::waves;

/// The figures of the collection are printed with 12 digits.
constexpr double kPrinted = 1e-11;

ProjectedMultiheadAttentionOptions projected(int64_t dim, int64_t heads) {
  return ProjectedMultiheadAttentionOptions(dim).n_heads(heads);
}

/// A module in training with a call of it.
struct TrainedModule {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor()> run;
};

/// Every module, in a dtype, with masks and dropout where it has them.
std::vector<TrainedModule> modules(at::ScalarType dtype) {
  const at::Tensor x = waves({2, 33, 24}, 0.7, 0.1, dtype), y = waves({2, 41, 24}, 0.9, 0.4, dtype);
  const at::Tensor open = waves({2, 33, 41}, 0.4, 0.2).gt(-0.3);
  XavierMultiheadAttention xavier(24, 24, 12, 24, 3);
  XavierMultiheadAttention dropping(
      XavierMultiheadAttentionOptions(24, 24, 12, 24, 3).attn_dropout(0.3));
  EinsumMultiheadAttention einsum(24, 3);
  ProjectedMultiheadAttention proj(projected(24, 3));
  PreprojectedMultiheadAttention clipped(projected(24, 3));
  clipped->attentionScore->options.use_tanh(true).C(10);
  CausalMultiheadAttention causal(24, 3);
  std::vector<TrainedModule> all = {
      {"Xavier", xavier.ptr(), [=]() mutable { return std::get<0>(xavier(x, y, y, open)); }},
      {"Xavier with dropout", dropping.ptr(),
       [=]() mutable { return std::get<0>(dropping(x, y, y, open)); }},
      {"Einsum", einsum.ptr(), [=]() mutable { return einsum(y, y, x, open.unsqueeze(1)); }},
      {"Projected", proj.ptr(), [=]() mutable { return proj(x, y, open.logical_not()); }},
      {"Projected, one query batch", proj.ptr(),
       [=]() mutable { return proj(x.narrow(0, 0, 1), y); }},
      {"Preprojected, clipped", clipped.ptr(),
       [=]() mutable { return clipped(x, y, y, open.logical_not()); }},
      {"Causal", causal.ptr(), [=]() mutable { return causal(x); }},
  };
  for (TrainedModule& one : all) {
    one.module->to(dtype);
    const at::NoGradGuard no_grad;
    int p = 0;
    for (at::Tensor& parameter : one.module->parameters()) {
      parameter.copy_(waves(parameter.sizes(), 0.37 + 0.11 * p, 0.2 * p).mul(0.5));
      ++p;
    }
  }
  return all;
}

/// Output and gradients of all parameters.
std::vector<at::Tensor> trained(const TrainedModule& one, Backend backend) {
  const BackendGuard guard(backend);
  torch::manual_seed(4);
  one.module->zero_grad();
  const at::Tensor output = one.run();
  output.backward(waves(output.sizes(), 0.3, 0.6, output.scalar_type()));
  std::vector<at::Tensor> results = {output.detach()};
  for (const at::Tensor& parameter : one.module->parameters()) {
    results.push_back(parameter.grad().clone());
  }
  return results;
}

TEST(FusedTraining, IsWhatEveryModuleDoesByDefault) {
  for (const TrainedModule& one : modules(at::kFloat)) {
    const auto by_default = trained(one, Backend::kAuto), by_fused = trained(one, Backend::kFused);
    for (size_t i = 0; i < by_fused.size(); ++i) {
      EXPECT_TRUE(at::equal(by_default[i], by_fused[i])) << one.name;
    }
    for (const std::string& name : operators_during([&] { trained(one, Backend::kAuto); })) {
      EXPECT_NE(name, "aten::softmax") << one.name;
      EXPECT_NE(name, "aten::_softmax_backward_data") << one.name;
      EXPECT_NE(name, "aten::scaled_dot_product_attention") << one.name;
    }
  }
}

TEST(FusedTraining, GivesTheReferencesGradientsUnderTheSameDropout) {
  const KernelDropoutGuard the_same_dropout;
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    for (const TrainedModule& one : modules(dtype)) {
      const auto found = trained(one, Backend::kFused);
      const auto expected = trained(one, Backend::kReference);
      for (size_t i = 0; i < expected.size(); ++i) {
        // Maps of 24 terms, attention over 41 keys, gradients that sum 2 · 41 rows, of which some cancel:
        // a thousand roundings of the largest number, and ten times that through a clip of C = 10.
        const double size = std::max(1.0, expected[i].abs().max().item<double>());
        EXPECT_TRUE(is_near(found[i], expected[i], 1e4 * testing::epsilon(dtype) / 2 * size))
            << one.name << " " << dtype << " " << i;
      }
    }
  }
}

TEST(FusedTraining, ReturnsWeightsByTheReference) {
  XavierMultiheadAttention module(XavierMultiheadAttentionOptions(6, 8, 4, 7, 2));
  const at::Tensor x = waves({3, 5, 6}, 0.7, 0.1, at::kFloat);
  const auto names = operators_during(
      [&] { std::get<1>(module(x, x, x, at::Tensor(), true)).select(3, 0).sum().backward(); });
  EXPECT_EQ(std::count(names.begin(), names.end(), "aten::softmax"), 1);
  EXPECT_GT(module->Q->weight.grad().abs().max().item<double>(), 0.0);
}

TEST(FusedTraining, C01_AFullyMaskedRowPoisonsSharedWeightsAsInPythonUnlessZeroIsAskedFor) {
  const BackendGuard guard(Backend::kFused);
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1);
  const at::Tensor blocked = bools({2, 1, 1}, {1, 0}).expand({2, 1, 3});
  const auto train = [&](FullyMasked rule, const at::Tensor& input, const at::Tensor& mask) {
    ProjectedMultiheadAttention module(projected(8, 2).fully_masked(rule));
    module->to(at::kDouble);
    fill_with_waves(module);
    module(input, input, mask)[-1].sum().backward();
    return module;
  };
  const auto python = train(FullyMasked::kNaN, x, blocked);
  EXPECT_TRUE(python->valueEncoder->weight.grad().isnan().any().item<bool>());
  EXPECT_TRUE(python->MHA->project_out->weight.grad().isnan().any().item<bool>());
  EXPECT_FALSE(python->queryEncoder->weight.grad().isnan().any().item<bool>());
  EXPECT_FALSE(python->keyEncoder->weight.grad().isnan().any().item<bool>());
  const auto zero = train(FullyMasked::kZero, x, blocked);
  EXPECT_NEAR(zero->valueEncoder->weight.grad().sum().item<double>(), 0.0472511871775, kPrinted);
  EXPECT_NEAR(zero->queryEncoder->weight.grad().sum().item<double>(), 0.151869955235, kPrinted);
  const auto alone = train(FullyMasked::kZero, x.narrow(0, 1, 1), at::Tensor());
  for (const auto& item : zero->named_parameters()) {
    EXPECT_TRUE(is_near(item.value().grad(), alone->named_parameters()[item.key()].grad(), 1e-14));
  }
}

TEST(FusedTraining, C13_AMaskOfOneKeyOrOfOddStridesHasTheSameGradients) {
  auto module = fill_with_waves(XavierMultiheadAttention(8, 8, 8, 8, 2));
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);
  const at::Tensor mask = bools({2, 3, 1}, {1, 0, 1, 0, 1, 1});
  const auto gradient = [&](const at::Tensor& given) {
    const BackendGuard guard(Backend::kFused);
    module->zero_grad();
    std::get<0>(module(x, x, x, given)).square().sum().backward();
    return module->K->weight.grad().clone();
  };
  const at::Tensor expected = gradient(mask.expand({2, 3, 3}).contiguous());
  EXPECT_GT(expected.abs().max().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(gradient(mask), expected));
  EXPECT_TRUE(at::equal(gradient(at::as_strided(mask, {2, 3, 1}, {3, 1, 999999})), expected));
}

TEST(FusedTraining, C15_WithoutBatchesQueriesOrKeysGradientsAreZero) {
  const BackendGuard guard(Backend::kFused);
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);
  const at::Tensor none = x.narrow(1, 0, 0), nobody = x.narrow(0, 0, 0);
  auto einsum = fill_with_waves(EinsumMultiheadAttention(8, 2));
  for (const auto& [y, z] : {std::pair{none, x}, std::pair{x, none}, std::pair{nobody, nobody}}) {
    einsum->zero_grad();
    einsum(y, y, z).sum().backward();
    for (const auto& item : einsum->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      // Every row of the output is the bias.
      const double expected =
          item.key() == "fc_out.bias" ? static_cast<double>(z.numel()) / 8 : 0.0;
      EXPECT_EQ(item.value().grad().abs().max().item<double>(), expected) << item.key();
    }
  }
}

TEST(FusedTraining, C24_DropoutsBackwardUsesTheSameMaskAndScale) {
  XavierMultiheadAttention module(
      XavierMultiheadAttentionOptions(4, 4, 4, 4, 1).attn_dropout(0.25));
  module->to(at::kDouble);
  fill_with_waves(module);
  const at::Tensor x = waves({1, 4, 4}, 0.7, 0.1), g = waves({1, 4, 4}, 0.3, 0.6);
  const auto weights = [&] {  // of the same seed; without a gradient, the kernel returns them
    const BackendGuard guard(Backend::kFused);
    const at::NoGradGuard no_grad;
    torch::manual_seed(1);
    return std::get<1>(module(x, x, x, at::Tensor(), true));
  };
  const at::Tensor dropped = weights();
  EXPECT_TRUE(dropped.eq(0).any().item<bool>());
  const at::Tensor values = waves({1, 4, 4}, 1.3, 0.8).requires_grad_();
  const BackendGuard guard(Backend::kFused);
  torch::manual_seed(1);
  std::get<0>(module(x, x, values)).backward(g);
  const at::Tensor expected =
      dropped[0][0].t().mm(g[0].mm(module->Wo->weight)).mm(module->V->weight);
  EXPECT_TRUE(is_near(values.grad()[0], expected, 1e-14));
}

TEST(FusedTraining, C24_DropoutOfEverythingGivesTheBiasAndZeroGradients) {
  const BackendGuard guard(Backend::kFused);
  auto module = fill_with_waves(
      XavierMultiheadAttention(XavierMultiheadAttentionOptions(4, 4, 4, 4, 1).attn_dropout(1.0)));
  const at::Tensor x = waves({1, 4, 4}, 0.7, 0.1, at::kFloat).requires_grad_();
  const at::Tensor out = std::get<0>(module(x, x, x));
  EXPECT_TRUE(at::equal(out, module->Wo->bias.expand({1, 4, 4})));
  out.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::zeros({1, 4, 4})));
  EXPECT_TRUE(at::equal(module->Wo->weight.grad(), at::zeros({4, 4})));
}

/// The losses of 200 steps of gradient descent: two layers learn to move each token to its neighbour's
/// place.
std::vector<double> loss_curve(Backend backend, at::ScalarType dtype, double dropout) {
  const BackendGuard guard(backend);
  torch::manual_seed(12);
  XavierMultiheadAttention first(
      XavierMultiheadAttentionOptions(16, 16, 16, 16, 2).attn_dropout(dropout));
  CausalMultiheadAttention second(16, 2);
  first->to(dtype), second->to(dtype);
  const at::Tensor x = at::randn({4, 20, 16}).to(dtype), target = x.roll(1, 1);
  std::vector<at::Tensor> parameters = first->parameters();
  for (const at::Tensor& parameter : second->parameters()) parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1));
  std::vector<double> losses;
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    const at::Tensor hidden = x + std::get<0>(first(x, x, x));
    const at::Tensor loss = at::mse_loss(second(hidden), target);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(FusedTraining, TheLossCurveOf200StepsIsTheReferences) {
  // A step moves each parameter by 0.1 of a gradient that is off by some 10 roundings, and the loss, of
  // order 1, by hardly more: 10 · 0.1 · √200 = 14 roundings after 200 steps at random, twice that at the
  // extreme. The descent amplifies none: a parameter that starts 1e-9 away moves the loss most at once.
  const KernelDropoutGuard the_same_dropout;
  for (const double dropout : {0.0, 0.2}) {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      const auto expected = loss_curve(Backend::kReference, dtype, dropout);
      const auto found = loss_curve(Backend::kFused, dtype, dropout);
      EXPECT_LT(expected.back(), 0.9 * expected.front());  // it learns
      for (size_t step = 0; step < expected.size(); ++step) {
        ASSERT_NEAR(found[step], expected[step], 28 * testing::epsilon(dtype) / 2)
            << "step " << step << " dropout " << dropout;
      }
    }
  }
}

}  // namespace
}  // namespace attn
