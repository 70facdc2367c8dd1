// Bugs that users of other attention code reported, each with its right outcome; the number is that
// of the collection that they come from. Outcomes are exact arithmetic, not another library's.

#include <ATen/Parallel.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <attn/attn.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <thread>

#include "support/plain_attention.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::error_of;
using testing::fill_with_waves;
using testing::is_near;
using testing::lower_triangle;
using testing::waves;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Sums of some ten terms of order 1 in float64.
constexpr double kFloat64Bound = 1e-14;
/// The figures of the collection are printed with 12 digits.
constexpr double kPrinted = 1e-11;

ProjectedMultiheadAttentionOptions projected(int64_t dim, int64_t heads) {
  return ProjectedMultiheadAttentionOptions(dim).n_heads(heads);
}

/// Logits against two keys, the weights that they give.
at::Tensor weights_of(std::vector<double> logits, const AttentionOptions& options = {}) {
  const auto count = static_cast<int64_t>(logits.size());
  const at::Tensor key = at::tensor(logits, at::kFloat).reshape({1, 1, count, 1});
  const at::Tensor one = at::ones({1, 1, 1, 1});
  return attention(one, key, key, AttentionOptions(options).need_weights(true)).weights.flatten();
}

TEST(ReportedBugs, C01_AFullyMaskedRowPoisonsSharedWeightsAsInPythonUnlessZeroIsAskedFor) {
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1);
  const at::Tensor blocked = bools({2, 1, 1}, {1, 0}).expand({2, 1, 3});
  const auto gradients = [&](FullyMasked rule) {
    ProjectedMultiheadAttention module(projected(8, 2).fully_masked(rule));
    module->to(at::kDouble);
    fill_with_waves(module);
    module(x, x, blocked)[1].sum().backward();
    return module;
  };
  const auto python = gradients(FullyMasked::kNaN);
  EXPECT_TRUE(python->valueEncoder->weight.grad().isnan().any().item<bool>());
  EXPECT_TRUE(python->MHA->project_out->weight.grad().isnan().any().item<bool>());
  EXPECT_FALSE(python->queryEncoder->weight.grad().isnan().any().item<bool>());
  EXPECT_FALSE(python->keyEncoder->weight.grad().isnan().any().item<bool>());
  const auto zero = gradients(FullyMasked::kZero);
  EXPECT_NEAR(zero->valueEncoder->weight.grad().sum().item<double>(), 0.0472511871775, kPrinted);
  EXPECT_NEAR(zero->queryEncoder->weight.grad().sum().item<double>(), 0.151869955235, kPrinted);
}

TEST(ReportedBugs, C03_AFullyMaskedRowIsWhatItsRuleSays) {
  const Mask all = Mask::block(at::ones({1, 3}, at::kBool));
  const auto weights = [&](const AttentionOptions& options) {
    return weights_of({0, 1, 2}, AttentionOptions(options).mask(all));
  };
  const at::Tensor third = at::full({3}, 1.0 / 3);
  EXPECT_TRUE(is_near(weights(AttentionOptions().masked_score(-1e9)), third, 1e-7));
  EXPECT_TRUE(is_near(weights(AttentionOptions().masked_score(-1e20)), third, 1e-7));
  EXPECT_TRUE(at::equal(weights({}), at::zeros({3})));
  EXPECT_TRUE(
      weights(AttentionOptions().fully_masked(FullyMasked::kNaN)).isnan().all().item<bool>());
}

TEST(ReportedBugs, C05_CausalIsAlignedWhereItsNameSays) {
  const auto run = [](int64_t queries, int64_t keys, const Mask& mask) {
    const at::Tensor value = at::arange(keys, at::kDouble).reshape({1, 1, keys, 1});
    const at::Tensor zeros = at::zeros({1, 1, queries, 1}, at::kDouble);
    return attention(zeros, at::zeros_like(value), value, AttentionOptions().mask(mask))
        .output.flatten();
  };
  const auto values = [](std::vector<double> list) { return at::tensor(list, at::kDouble); };
  EXPECT_TRUE(is_near(run(2, 5, Mask::causal()), values({0, 0.5}), kFloat64Bound));
  EXPECT_TRUE(is_near(run(2, 5, Mask::causal_bottom_right()), values({1.5, 2}), kFloat64Bound));
  EXPECT_TRUE(is_near(run(5, 2, Mask::causal()), values({0, .5, .5, .5, .5}), kFloat64Bound));
  EXPECT_TRUE(
      is_near(run(5, 2, Mask::causal_bottom_right()), values({0, 0, 0, 0, .5}), kFloat64Bound));
}

TEST(ReportedBugs, C11_AnyStridesGiveTheSameResult) {
  const at::Tensor base = waves({2, 3, 5, 8}, 0.7, 0.1);
  testing::PlainAttention plain{.scale = 1 / std::sqrt(8.0)};
  plain(base, base, base);
  EXPECT_NEAR(plain.output[0][0][0][0].item<double>(), -0.303730885293, kPrinted);
  EXPECT_NEAR(plain.output[0][0][0][1].item<double>(), 0.244785857192, kPrinted);
  const std::vector<at::Tensor> layouts = {
      base.permute({0, 2, 1, 3}).contiguous().permute({0, 2, 1, 3}),
      base.transpose(-1, -2).contiguous().transpose(-1, -2),
      at::stack({base, -base}, -1).flatten(-2).slice(-1, 0, 16, 2),
      at::cat({base, base * 9, base * 7}, -1).narrow(-1, 0, 8),
      base.permute({1, 2, 3, 0}).contiguous().permute({3, 0, 1, 2}),
  };
  for (const at::Tensor& x : layouts) {
    ASSERT_TRUE(at::equal(x, base));
    EXPECT_TRUE(is_near(attention(x, x, x).output, plain.output, kFloat64Bound));
    EXPECT_TRUE(is_near(attention(base, x, base).output, plain.output, kFloat64Bound));
  }
  const at::Tensor shared = waves({1, 1, 33, 8}, 0.9, 0.4).expand({2, 3, 33, 8});
  plain(base, shared, shared);
  EXPECT_TRUE(is_near(attention(base, shared, shared).output, plain.output, kFloat64Bound));
}

TEST(ReportedBugs, C13_AMaskOfOneKeyOrOfOddStridesIsReadWithinItsBounds) {
  auto module = fill_with_waves(XavierMultiheadAttention(8, 8, 8, 8, 2));
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);
  const at::Tensor mask = bools({2, 3, 1}, {1, 0, 1, 0, 1, 1});
  const at::NoGradGuard no_grad;
  const auto [expected, weights] = module(x, x, x, mask.expand({2, 3, 3}).contiguous(), true);
  EXPECT_TRUE(at::equal(std::get<0>(module(x, x, x, mask)), expected));
  const at::Tensor odd = at::as_strided(mask, {2, 3, 1}, {3, 1, 999999});
  EXPECT_TRUE(at::equal(std::get<0>(module(x, x, x, odd)), expected));
  EXPECT_TRUE(is_near(weights[0][0][1], at::full({3}, 1.0 / 3), 1e-7));
}

TEST(ReportedBugs, C15_WithoutKeysTheOutputIsTheBiasAndGradientsAreDefined) {
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);
  const at::Tensor none = x.narrow(1, 0, 0);
  auto xavier = fill_with_waves(XavierMultiheadAttention(8, 8, 8, 8, 2));
  auto einsum = fill_with_waves(EinsumMultiheadAttention(8, 2));
  auto projected_module = fill_with_waves(ProjectedMultiheadAttention(projected(8, 2)));
  EXPECT_TRUE(at::equal(std::get<0>(xavier(x, none, none)), xavier->Wo->bias.expand({2, 3, 8})));
  EXPECT_TRUE(at::equal(einsum(none, none, x), einsum->fc_out->bias.expand({2, 3, 8})));
  EXPECT_TRUE(at::equal(projected_module(x, none), at::zeros({2, 3, 8})));
  EXPECT_TRUE(at::equal(multihead_masked_attention(x, none, none, 2), at::zeros({2, 3, 8})));

  einsum(none, none, x).sum().backward();
  for (const auto& item : einsum->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    const double expected = item.key() == "fc_out.bias" ? 6.0 : 0.0;  // 2 · 3 rows of the bias
    EXPECT_EQ(item.value().grad().abs().max().item<double>(), expected) << item.key();
  }
}

TEST(ReportedBugs, C18_LargeLogitsNeitherOverflowNorLoseTheirDifference) {
  const std::vector<double> larger = {0.731058579, 0.268941421};
  const auto expect = [](std::vector<double> logits, std::vector<double> weights, double bound) {
    EXPECT_TRUE(is_near(weights_of(logits), at::tensor(weights, at::kDouble), bound));
  };
  // float32 keeps 151.29 and 150.29 to 8e-6, which moves the weight by a quarter of that.
  expect({151.29, 150.29}, larger, 4e-6);
  expect({1e4, -1e4}, {1, 0}, 0.0);
  expect({-1e4, -1e4 - 1}, larger, 1e-6);
  expect({3e38, 0}, {1, 0}, 0.0);
  expect({-3e38, -3e38}, {0.5, 0.5}, 0.0);
}

TEST(ReportedBugs, C19_ClippingLargeLogitsGivesThePlainValueAndNoNaN) {
  AttentionScore score(AttentionScoreOptions().use_tanh(true).C(50));
  const std::vector<double> u = {1, 100, 1e3, 5e3, 1e4, -1e4, 3e38, kInfinity, -kInfinity, 0.3};
  const at::Tensor key = at::tensor(u, at::kFloat).reshape({1, 10, 1});
  const at::Tensor query = at::ones({1, 1, 1}).requires_grad_();
  const at::Tensor expected = at::tensor(u, at::kDouble).tanh().mul(50).reshape({1, 1, 10});
  EXPECT_TRUE(is_near(score(query, key), expected, 50 * 2 * testing::epsilon(at::kFloat)));
  score(query, key.narrow(1, 0, 7)).narrow(2, 2, 5).sum().backward();
  EXPECT_EQ(query.grad().item<double>(), 0.0);
}

TEST(ReportedBugs, C22_DropoutIsOffInEvaluationAndDrawsNothing) {
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);
  const auto options = XavierMultiheadAttentionOptions(8, 8, 8, 8, 2);
  XavierMultiheadAttention dropping(XavierMultiheadAttentionOptions(options).attn_dropout(0.9));
  fill_with_waves(dropping)->eval();
  auto plain = fill_with_waves(XavierMultiheadAttention(options));
  torch::manual_seed(1);
  const at::Tensor next = at::rand({4});
  torch::manual_seed(1);
  const at::Tensor first = std::get<0>(dropping(x, x, x));
  EXPECT_TRUE(at::equal(at::rand({4}), next));
  EXPECT_TRUE(at::equal(std::get<0>(dropping(x, x, x)), first));
  EXPECT_TRUE(at::equal(std::get<0>(plain(x, x, x)), first));
}

TEST(ReportedBugs, C24_DropoutsBackwardUsesTheSameMaskAndScale) {
  XavierMultiheadAttention module(
      XavierMultiheadAttentionOptions(4, 4, 4, 4, 1).attn_dropout(0.25));
  module->to(at::kDouble);
  fill_with_waves(module);
  const at::Tensor x = waves({1, 4, 4}, 0.7, 0.1);
  const at::Tensor values = waves({1, 4, 4}, 1.3, 0.8).requires_grad_();
  torch::manual_seed(1);
  const auto [out, attn] = module(x, x, values, at::Tensor(), true);
  const at::Tensor g = waves({1, 4, 4}, 0.3, 0.6);
  out.backward(g);
  const at::Tensor expected = attn[0][0].t().mm(g[0].mm(module->Wo->weight)).mm(module->V->weight);
  EXPECT_TRUE(is_near(values.grad()[0], expected, kFloat64Bound));
}

TEST(ReportedBugs, C24_DropoutOfEverythingGivesTheBiasAndZeroGradients) {
  auto module = fill_with_waves(
      XavierMultiheadAttention(XavierMultiheadAttentionOptions(4, 4, 4, 4, 1).attn_dropout(1.0)));
  const at::Tensor x = waves({1, 4, 4}, 0.7, 0.1, at::kFloat).requires_grad_();
  const auto [out, attn] = module(x, x, x, at::Tensor(), true);
  EXPECT_TRUE(at::equal(attn, at::zeros({1, 1, 4, 4})));
  EXPECT_TRUE(at::equal(out, module->Wo->bias.expand({1, 4, 4})));
  out.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::zeros({1, 4, 4})));
  EXPECT_TRUE(at::equal(module->Wo->weight.grad(), at::zeros({4, 4})));
}

TEST(ReportedBugs, C26_DoubleBackwardIsRight) {
  for (const Backend backend : {Backend::kReference, Backend::kFused}) {
    const BackendGuard guard(backend);
    CausalMultiheadAttention module(4, 2);
    module->to(at::kDouble);
    fill_with_waves(module);
    const at::Tensor x = waves({1, 3, 4}, 0.5, 0.3).requires_grad_();
    const auto gradient = [](const at::Tensor& of, const at::Tensor& by, bool create_graph) {
      return torch::autograd::grad({of}, {by}, {}, std::nullopt, create_graph)[0];
    };
    const at::Tensor penalty = gradient(module(x).sum(), x, true).square().sum();
    EXPECT_NEAR(penalty.item<double>(), 0.689944689318, kPrinted) << backend;
    EXPECT_NEAR(gradient(penalty, x, false)[0][1][2].item<double>(), 0.0578927864007, kPrinted)
        << backend;
  }
}

TEST(ReportedBugs, C27_AskingForWeightsLeavesTheOutputAlone) {
  auto module = fill_with_waves(XavierMultiheadAttention(8, 8, 8, 8, 2));
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor mask = lower_triangle(3, 3).repeat({2, 1, 1});
  mask[1][2].fill_(false);
  const auto output = [&](bool need_attn) { return std::get<0>(module(x, x, x, mask, need_attn)); };
  // In training the reference returns them, and rounds otherwise: outputs of order 1 of sums of 8.
  EXPECT_TRUE(is_near(output(true), output(false), 20 * testing::epsilon(at::kFloat)));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(output(true), output(false)));
  const at::Tensor q = waves({2, 3, 4, 5}, 0.7, 0.1, at::kFloat);
  for (const Backend backend : available_backends()) {
    const auto options =
        AttentionOptions().mask(Mask::attend(lower_triangle(4, 4, -1))).backend(backend);
    const auto asking = AttentionOptions(options).need_weights(true);
    if (why_not(backend, q, q, q, asking)) continue;
    EXPECT_TRUE(at::equal(attention(q, q, q, options).output, attention(q, q, q, asking).output));
  }
}

TEST(ReportedBugs, C28_AMaskWhoseRankIsAmbiguousIsRefused) {
  auto module = fill_with_waves(XavierMultiheadAttention(8, 8, 8, 8, 2));
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);  // B = H = 2
  const at::Tensor padding = bools({2, 3}, {1, 1, 0, 1, 0, 0});
  EXPECT_NE(error_of([&] { module(x, x, x, padding); }).find("[B, 1, S]"), std::string::npos);
  const at::Tensor weights = std::get<1>(module(x, x, x, padding.unsqueeze(1), true));
  EXPECT_TRUE(at::equal(weights[1].narrow(-1, 1, 2), at::zeros({2, 3, 2})));
  EXPECT_GT(weights[0].select(-1, 1).min().item<double>(), 0.0);
}

TEST(ReportedBugs, C29_NoModuleLetsALaterTokenThroughACausalMask) {
  const at::Tensor x = waves({1, 4, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor changed = x.clone();
  changed.select(1, 3).add_(5);
  const at::Tensor open = lower_triangle(4, 4);
  auto xavier = fill_with_waves(XavierMultiheadAttention(8, 8, 8, 8, 2));
  auto einsum = fill_with_waves(EinsumMultiheadAttention(8, 2));
  auto projected_module = fill_with_waves(ProjectedMultiheadAttention(projected(8, 2)));
  auto causal = fill_with_waves(CausalMultiheadAttention(8, 2));
  const std::vector<std::function<at::Tensor(const at::Tensor&)>> modules = {
      [&](const at::Tensor& y) { return std::get<0>(xavier(y, y, y, open.unsqueeze(0))); },
      [&](const at::Tensor& y) { return einsum(y, y, y, open); },
      [&](const at::Tensor& y) { return projected_module(y, y, open.logical_not().unsqueeze(0)); },
      [&](const at::Tensor& y) { return causal(y); },
      [&](const at::Tensor& y) {
        return attention(y, y, y, AttentionOptions().mask(Mask::causal())).output;
      }};
  for (const auto& module : modules) {
    EXPECT_TRUE(at::equal(module(x).narrow(1, 0, 3), module(changed).narrow(1, 0, 3)));
    EXPECT_FALSE(at::equal(module(x).narrow(1, 3, 1), module(changed).narrow(1, 3, 1)));
  }
}

TEST(ReportedBugs, C30_NothingIsSqueezedWhereEverySizeIsOne) {
  const at::Tensor one = at::full({1, 1, 1}, 0.5);
  const auto [out, weights] =
      XavierMultiheadAttention(1, 1, 1, 1, 1)(one, one, one, at::Tensor(), true);
  EXPECT_EQ(out.sizes(), one.sizes());
  EXPECT_TRUE(at::equal(weights, at::ones({1, 1, 1, 1})));
  EXPECT_EQ(EinsumMultiheadAttention(1, 1)(one, one, one).sizes(), one.sizes());
  EXPECT_EQ(ProjectedMultiheadAttention(projected(1, 1))(one).sizes(), one.sizes());
  EXPECT_EQ(CausalMultiheadAttention(1, 1)(one).sizes(), one.sizes());
}

TEST(ReportedBugs, C31_OneModuleServesManyThreads) {
  auto module = fill_with_waves(CausalMultiheadAttention(16, 4));
  std::vector<at::Tensor> inputs, expected;
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 8; ++i) {
    inputs.push_back(waves({2, 9, 16}, 0.1 * i + 0.3, 0.2, at::kFloat));
    expected.push_back(module(inputs.back()));
  }
  std::vector<int> agreeing(8, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const at::NoGradGuard no_grad_here;
      for (int n = 0; n < 50; ++n)
        agreeing[i] += at::equal(module->forward(inputs[i]), expected[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(agreeing, std::vector<int>(8, 50));
}

TEST(ReportedBugs, C33_AnInferenceTensorInATrainingGraphIsAClearError) {
  auto module = fill_with_waves(CausalMultiheadAttention(8, 2));
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor inferred;
  {
    const c10::InferenceMode inference;
    inferred = module(x);
  }
  EXPECT_NE(error_of([&] { module(inferred); }).find("Inference tensors"), std::string::npos);
  module(x).sum().backward();
  EXPECT_TRUE(module->W_QKV->weight.grad().defined());
}

TEST(ReportedBugs, C34_ARowDoesNotDependOnItsBatchmates) {
  auto module = fill_with_waves(CausalMultiheadAttention(16, 4));
  const at::Tensor x = waves({8, 33, 16}, 0.3, 0.2, at::kFloat);
  // The projections' GEMM may sum in another order: 16 products below 1, twice, in float32.
  EXPECT_TRUE(is_near(module(x).narrow(0, 3, 1), module(x.narrow(0, 3, 1)),
                      32 * testing::epsilon(at::kFloat)));
}

}  // namespace
}  // namespace attn
