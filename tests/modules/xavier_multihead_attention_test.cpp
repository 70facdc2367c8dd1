#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <attn/modules/xavier_multihead_attention.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::error_of;
using testing::fill_with_waves;
using testing::is_near;
using testing::lower_triangle;
using testing::waves;

struct XavierTest : ::testing::Test {
  XavierMultiheadAttention module = fill_with_waves(XavierMultiheadAttention(6, 8, 4, 7, 2));
  at::Tensor q = waves({3, 2, 6}, 0.7, 0.1, at::kFloat);
  at::Tensor k = waves({3, 5, 6}, 0.9, 0.4, at::kFloat);
  at::Tensor v = waves({3, 5, 6}, 1.3, 0.8, at::kFloat);

  XavierTest() { module->eval(); }

  at::Tensor weights(const at::Tensor& mask) { return std::get<1>(module(q, k, v, mask, true)); }
  std::string error(const at::Tensor& mask) {
    return error_of([&] { module(q, k, v, mask); });
  }
};

TEST_F(XavierTest, ReturnsTheWeightsOnlyWhenAsked) {
  EXPECT_FALSE(std::get<1>(module(q, k, v)).defined());
  EXPECT_EQ(weights({}).sizes(), at::IntArrayRef({3, 2, 2, 5}));
}

TEST_F(XavierTest, ReturnsWeightsThatAreDifferentiable) {
  weights({}).select(3, 0).sum().backward();
  EXPECT_GT(module->Q->weight.grad().abs().max().item<double>(), 0.0);
}

TEST_F(XavierTest, AttendsWhereTheMaskIsTrue) {
  at::Tensor mask = at::zeros({3, 2, 5}, at::kBool);
  mask.select(2, 3).fill_(true);
  EXPECT_TRUE(at::equal(weights(mask).select(3, 3), at::ones({3, 2, 2})));
}

TEST_F(XavierTest, TakesEveryThreeDimensionalMaskThatBroadcasts) {
  const at::Tensor whole = lower_triangle(2, 5, 2).expand({3, 2, 5});
  EXPECT_TRUE(at::equal(weights(whole), weights(whole.narrow(0, 0, 1))));
  const at::Tensor keys = whole.narrow(1, 1, 1);
  EXPECT_TRUE(at::equal(weights(keys), weights(keys.expand({3, 2, 5}))));
  const at::Tensor rows = whole.narrow(2, 3, 1);
  EXPECT_TRUE(at::equal(weights(rows), weights(rows.expand({3, 2, 5}))));
}

TEST_F(XavierTest, RefusesMasksThatPythonReadsAsHeadsOrQueries) {
  const std::string advice =
      "[XavierMultiheadAttention] mask: expected three dimensions that broadcast to [B, L, S] "
      "(pass "
      "a key padding mask as [B, 1, S]), got ";
  EXPECT_EQ(error(at::ones({3, 5}, at::kBool)), advice + "[3, 5]");
  EXPECT_EQ(error(at::ones({5}, at::kBool)), advice + "[5]");
  EXPECT_EQ(error(at::ones({3, 1, 2, 5}, at::kBool)), advice + "[3, 1, 2, 5]");
  EXPECT_EQ(error(at::ones({3, 5, 2}, at::kBool)), advice + "[3, 5, 2]");
  EXPECT_EQ(error(at::ones({3, 2, 5}, at::kByte)),
            "[XavierMultiheadAttention] mask: expected dtype Bool, got Byte");
  EXPECT_EQ(error(at::ones({3, 2, 5})),
            "[XavierMultiheadAttention] mask: expected dtype Bool, got Float");
}

TEST_F(XavierTest, MakesAFullyMaskedRowThePlainMeanInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    module->to(dtype);
    const auto [out, attn] =
        module(q.to(dtype), k.to(dtype), v.to(dtype), at::zeros({3, 1, 5}, at::kBool), true);
    EXPECT_TRUE(at::equal(attn, at::full({3, 2, 2, 5}, 0.2, dtype))) << dtype;
    EXPECT_TRUE(out.isfinite().all().item<bool>()) << dtype;
  }
}

TEST_F(XavierTest, DropsWeightsInTrainingOnly) {
  XavierMultiheadAttention dropping(
      XavierMultiheadAttentionOptions(6, 8, 4, 7, 2).attn_dropout(0.5));
  const at::Tensor trained = std::get<1>(dropping(q, k, v, at::Tensor(), true));
  EXPECT_TRUE(trained.eq(0).any().item<bool>());
  dropping->eval();
  const at::Tensor evaluated = std::get<1>(dropping(q, k, v, at::Tensor(), true));
  EXPECT_TRUE(is_near(evaluated.sum(-1), at::ones({3, 2, 2}), 1e-6));  // 5 roundings of 6e-8
  const at::Tensor kept = trained.ne(0);
  EXPECT_TRUE(at::equal(trained.masked_select(kept), evaluated.mul(2).masked_select(kept)));
}

TEST_F(XavierTest, DrawsQueriesAndKeysForUnitVariance) {
  torch::manual_seed(7);
  const XavierMultiheadAttention wide(400, 600, 500, 300, 5);
  const double std = std::sqrt(2.0 / (400 + 120));
  // 240 000 draws: the sample's standard deviation is within 0.15 % (one sigma) of the true one.
  EXPECT_NEAR(wide->Q->weight.std().item<double>() / std, 1.0, 0.006);
  EXPECT_NEAR(wide->K->weight.std().item<double>() / std, 1.0, 0.006);
  EXPECT_LE(wide->V->weight.abs().max().item<double>(), 1 / std::sqrt(400.0));
  EXPECT_LE(wide->Wo->weight.abs().max().item<double>(), 1 / std::sqrt(500.0));
  EXPECT_EQ(wide->Wo->bias.abs().max().item<double>(), 0.0);
}

TEST_F(XavierTest, RefusesOptionsThatCannotWork) {
  const auto error_with = [](const XavierMultiheadAttentionOptions& options) {
    return error_of([&] { XavierMultiheadAttention{options}; });
  };
  using Options = XavierMultiheadAttentionOptions;
  EXPECT_EQ(error_with(Options(0, 8, 8, 8, 2)),
            "[XavierMultiheadAttention] in_dim: expected at least 1, got 0");
  EXPECT_EQ(error_with(Options(8, 8, 8, 8, 0)),
            "[XavierMultiheadAttention] n_heads: expected at least 1, got 0");
  EXPECT_EQ(error_with(Options(8, 8, 8, 8, -2)),
            "[XavierMultiheadAttention] n_heads: expected at least 1, got -2");
  EXPECT_EQ(error_with(Options(8, 7, 7, 8, 2)),
            "[XavierMultiheadAttention] qk_dim: expected a multiple of n_heads = 2, got 7");
  EXPECT_EQ(error_with(Options(8, 8, 7, 8, 2)),
            "[XavierMultiheadAttention] v_dim: expected a multiple of n_heads = 2, got 7");
  EXPECT_EQ(error_with(Options(8, 8, 8, 8, 2).attn_dropout(1.5)),
            "[XavierMultiheadAttention] attn_dropout: expected a probability in [0, 1], got 1.5");
  EXPECT_EQ(error_with(Options(8, 8, 8, 8, 2).attn_dropout(NAN)),
            "[XavierMultiheadAttention] attn_dropout: expected a probability in [0, 1], got nan");
}

TEST_F(XavierTest, NamesTheInputThatIsWrong) {
  const auto error_with = [&](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    return error_of([&] { module(a, b, c); });
  };
  EXPECT_EQ(error_with({}, k, v),
            "[XavierMultiheadAttention] queries: expected [B, L, in_dim], got an undefined tensor");
  EXPECT_EQ(error_with(q[0], k, v),
            "[XavierMultiheadAttention] queries: expected [B, L, in_dim], got [2, 6]");
  EXPECT_EQ(error_with(q, k.narrow(2, 0, 5), v),
            "[XavierMultiheadAttention] keys: expected [B, S, in_dim], got [3, 5, 5]");
  EXPECT_EQ(error_with(q, k, v.narrow(1, 0, 4)),
            "[XavierMultiheadAttention] values length: expected 5 (from keys), got 4");
  EXPECT_EQ(error_with(q, k.narrow(0, 0, 1), v),
            "[XavierMultiheadAttention] keys batch: expected 3 (from queries), got 1");
  EXPECT_EQ(error_with(q.to(at::kDouble), k, v),
            "[XavierMultiheadAttention] queries: expected the dtype of the parameters, Float, got "
            "Double");
  EXPECT_EQ(
      error_with(q, k, v.to(at::kMeta)),
      "[XavierMultiheadAttention] values: expected the device of the parameters, cpu, got meta");
}

}  // namespace
}  // namespace attn
