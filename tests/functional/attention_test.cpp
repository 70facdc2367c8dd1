#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <attn/functional.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include "support/plain_attention.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::error_of;
using testing::is_near;
using testing::lower_triangle;
using testing::PlainAttention;
using testing::waves;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// A dot product of up to 33 terms below 1, a softmax and a mean, in float64: 100 roundings of 1e-16.
constexpr double kFloat64Bound = 1e-14;

/// Inputs of a size that no tile divides, with grouped heads and another value size.
struct AttentionTest : ::testing::Test {
  const int64_t B = 2, H = 4, Hk = 2, L = 5, S = 7, D = 3, Dv = 6;
  at::Tensor query = waves({B, H, L, D}, 0.7, 0.1);
  at::Tensor key = waves({B, Hk, S, D}, 0.9, 0.4);
  at::Tensor value = waves({B, Hk, S, Dv}, 1.3, 0.8);
  PlainAttention plain{.scale = 1 / std::sqrt(3.0)};

  at::Tensor whole(const at::Tensor& mask) { return mask.expand({B, H, L, S}); }

  void expect_plain(AttentionOptions options = {}) {
    plain(query, key, value);
    options.need_weights(true).need_logsumexp(true);
    const AttentionResult result = attention(query, key, value, options);
    EXPECT_TRUE(is_near(result.output, plain.output, kFloat64Bound));
    EXPECT_TRUE(is_near(result.weights, plain.weights, kFloat64Bound));
    EXPECT_TRUE(is_near(result.logsumexp, plain.logsumexp, kFloat64Bound));
  }
};

TEST_F(AttentionTest, IsTheFormulaWithGroupedHeads) { expect_plain(); }

TEST_F(AttentionTest, MultipliesByTheGivenScale) {
  plain.scale = 0.37;
  expect_plain(AttentionOptions().scale(0.37));
  plain.scale = 0.0;
  expect_plain(AttentionOptions().scale(0.0));
}

TEST_F(AttentionTest, ClipsToCTimesTanh) {
  plain.logit_clip = 10.0;
  expect_plain(AttentionOptions().logit_clip(10.0));
}

TEST_F(AttentionTest, CapsSoftlyToCTimesTanhOfUOverC) {
  plain.softcap = 0.5;
  expect_plain(AttentionOptions().softcap(0.5));
}

TEST_F(AttentionTest, AlignsCausalAtTheTopLeft) {
  plain.open = whole(lower_triangle(L, S));
  expect_plain(AttentionOptions().mask(Mask::causal()));
}

TEST_F(AttentionTest, AlignsCausalBottomRightAtTheLastKey) {
  plain.open = whole(lower_triangle(L, S, S - L));
  expect_plain(AttentionOptions().mask(Mask::causal_bottom_right()));
}

TEST_F(AttentionTest, LeavesEarlyQueriesWithoutKeysWhenThereAreMoreQueriesThanKeys) {
  key = key.narrow(2, 0, 3), value = value.narrow(2, 0, 3);
  plain.open = lower_triangle(L, 3, 3 - L).expand({B, H, L, 3});
  expect_plain(AttentionOptions().mask(Mask::causal_bottom_right()));
  EXPECT_EQ(plain.output.select(2, 0).abs().max().item<double>(), 0.0);
}

TEST_F(AttentionTest, OpensWhatAttendNamesAndBlocksWhatBlockNames) {
  const at::Tensor padding = bools({2, 1, 1, 7}, {1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0});
  plain.open = whole(padding);
  expect_plain(AttentionOptions().mask(Mask::attend(padding)));
  expect_plain(AttentionOptions().mask(Mask::block(padding.logical_not())));
}

TEST_F(AttentionTest, CombinesMasks) {
  const at::Tensor padding = bools({2, 1, 1, 7}, {1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0});
  const at::Tensor bias = waves({1, H, L, S}, 0.2, 0.5);
  plain.open = whole(padding.logical_and(lower_triangle(L, S)));
  plain.bias = whole(bias);
  expect_plain(AttentionOptions().mask(Mask::causal() & Mask::attend(padding) & Mask::bias(bias)));
}

TEST_F(AttentionTest, MasksAfterTheClip) {
  plain.logit_clip = 2.0;
  plain.open = whole(lower_triangle(L, S));
  expect_plain(AttentionOptions().logit_clip(2.0).mask(Mask::causal()));
}

TEST_F(AttentionTest, MakesAFullyMaskedRowZero) {
  const at::Tensor open = lower_triangle(L, S, -2);  // queries 0 and 1 see nothing
  plain.open = whole(open);
  expect_plain(AttentionOptions().mask(Mask::attend(open)));
  EXPECT_EQ(plain.output.narrow(2, 0, 2).abs().max().item<double>(), 0.0);
}

TEST_F(AttentionTest, MakesAFullyMaskedRowNaNWhenAsked) {
  const at::Tensor open = lower_triangle(L, S, -2);
  plain.open = whole(open);
  plain.fully_masked_is_nan = true;
  expect_plain(AttentionOptions().mask(Mask::attend(open)).fully_masked(FullyMasked::kNaN));
}

TEST_F(AttentionTest, MakesAFullyMaskedRowThePlainMeanUnderAFiniteScore) {
  const at::Tensor open = lower_triangle(L, S, -2);
  plain.open = whole(open);
  plain.masked_score = -1e9;
  const auto options = AttentionOptions().mask(Mask::attend(open)).masked_score(-1e9);
  const at::Tensor output = attention(query, key, value, options).output;
  plain(query, key, value);
  EXPECT_TRUE(is_near(output, plain.output, kFloat64Bound));
  const at::Tensor mean = value.mean(2).repeat_interleave(2, 1);  // [B, H, Dv]
  EXPECT_TRUE(is_near(output.select(2, 0), mean, kFloat64Bound));
}

TEST_F(AttentionTest, SaturatesAMaskedScoreBeyondTheDtypesRange) {
  const at::Tensor half = at::ones({1, 1, 2, 4}, at::kHalf);
  for (const double score : {-1e20, 1e20}) {
    const auto options = AttentionOptions().mask(Mask::causal()).masked_score(score);
    EXPECT_TRUE(is_near(attention(half, half, half, options).output, half, 0.0)) << score;
  }
}

TEST_F(AttentionTest, TreatsARowOfMinusInfinityInTheBiasAsFullyMasked) {
  const at::Tensor bias = at::zeros({L, S}, at::kDouble);
  bias.select(0, 2).fill_(-kInfinity);
  plain.bias = whole(bias);
  expect_plain(AttentionOptions().mask(Mask::bias(bias)));
}

TEST_F(AttentionTest, KeepsGradientsFiniteThroughAFullyMaskedRow) {
  for (at::Tensor* tensor : {&query, &key, &value}) tensor->requires_grad_();
  const at::Tensor open = lower_triangle(L, S, -2);
  const auto options = AttentionOptions().mask(Mask::attend(open)).need_logsumexp(true);
  const AttentionResult result = attention(query, key, value, options);
  const at::Tensor finite = result.logsumexp.masked_select(result.logsumexp.isfinite());
  (result.output.sum() + finite.sum()).backward();
  for (const at::Tensor& tensor : {query, key, value}) {
    EXPECT_TRUE(tensor.grad().isfinite().all().item<bool>());
  }
  EXPECT_EQ(query.grad().narrow(2, 0, 2).abs().max().item<double>(), 0.0);
  EXPECT_GT(query.grad().narrow(2, 3, 2).abs().max().item<double>(), 0.0);
}

TEST_F(AttentionTest, TakesThreeDimensionsAsNoBatch) {
  const auto options = AttentionOptions().need_weights(true).need_logsumexp(true);
  const AttentionResult batched = attention(query, key, value, options);
  const AttentionResult single = attention(query[1], key[1], value[1], options);
  EXPECT_TRUE(is_near(single.output, batched.output[1], kFloat64Bound));
  EXPECT_TRUE(is_near(single.weights, batched.weights[1], kFloat64Bound));
  EXPECT_TRUE(is_near(single.logsumexp, batched.logsumexp[1], kFloat64Bound));
}

TEST_F(AttentionTest, GivesNothingThatWasNotAskedFor) {
  for (const Backend backend : available_backends()) {
    const auto options = AttentionOptions().backend(backend);
    const AttentionResult result = attention(query, key, value, options);
    EXPECT_FALSE(result.weights.defined());
    EXPECT_FALSE(result.logsumexp.defined());
    EXPECT_EQ(result.backend, backend);
  }
}

TEST_F(AttentionTest, GivesZerosWithoutKeysAndNothingWithoutQueries) {
  const at::Tensor output = attention(query, key.narrow(2, 0, 0), value.narrow(2, 0, 0)).output;
  EXPECT_TRUE(is_near(output, at::zeros({B, H, L, Dv}), 0.0));
  EXPECT_EQ(attention(query.narrow(2, 0, 0), key, value).output.sizes(),
            at::IntArrayRef({B, H, 0, Dv}));
  EXPECT_EQ(
      attention(query.narrow(0, 0, 0), key.narrow(0, 0, 0), value.narrow(0, 0, 0)).output.sizes(),
      at::IntArrayRef({0, H, L, Dv}));
}

TEST_F(AttentionTest, GivesLogsumexpInFloat32ForReducedPrecision) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const AttentionResult result = attention(query.to(dtype), key.to(dtype), value.to(dtype),
                                             AttentionOptions().need_logsumexp(true));
    EXPECT_EQ(result.logsumexp.scalar_type(), at::kFloat);
    EXPECT_EQ(result.output.scalar_type(), dtype);
  }
}

TEST_F(AttentionTest, DropsWeightsAndScalesTheRest) {
  const at::Tensor wide = at::zeros({1, 1, 100, 100});
  torch::manual_seed(3);
  const auto options = AttentionOptions().dropout_p(0.25).need_weights(true);
  const at::Tensor weights = attention(wide, wide, wide, options).weights;  // 0.01 each before
  const at::Tensor kept = weights.ne(0);
  EXPECT_TRUE(is_near(weights.masked_select(kept),
                      at::full({kept.sum().item<int64_t>()}, 0.01 / 0.75), 1e-9));
  // 10 000 draws: a standard deviation of 0.0043 around 0.75.
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.75, 4 * 0.0043);
  torch::manual_seed(3);
  EXPECT_TRUE(attention(wide, wide, wide, options).weights.equal(weights));
  EXPECT_FALSE(attention(wide, wide, wide, options).weights.equal(weights));
}

TEST_F(AttentionTest, NamesTheArgumentThatIsWrong) {
  const auto error = [&](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionOptions& options = {}) {
    return error_of([&] { attention(q, k, v, options); });
  };
  EXPECT_EQ(error({}, key, value),
            "[attention] query: expected [B, H, L, D] or [H, L, D], got an undefined tensor");
  EXPECT_EQ(error(query[0][0], key, value),
            "[attention] query: expected [B, H, L, D] or [H, L, D], got [5, 3]");
  EXPECT_EQ(error(query.to(at::kLong), key, value),
            "[attention] query: expected float32, float64, bfloat16 or float16, got Long");
  EXPECT_EQ(error(query, key[0], value),
            "[attention] key: expected [B, Hk, S, D] as query has 4 dimensions, got [2, 7, 3]");
  EXPECT_EQ(error(query, key.to(at::kFloat), value),
            "[attention] key: expected the dtype of query, Double, got Float");
  EXPECT_EQ(error(query, key, value.narrow(0, 0, 1)),
            "[attention] value batch: expected 2 (from query), got 1");
  EXPECT_EQ(error(query, key.narrow(3, 0, 2), value),
            "[attention] key head size: expected 3 (from query), got 2");
  EXPECT_EQ(error(query, key, value.narrow(2, 0, 6)),
            "[attention] value length: expected 7 (from key), got 6");
  EXPECT_EQ(error(query.narrow(1, 0, 3), key, value),
            "[attention] key heads: expected a divisor of 3 (from query), got 2");
  EXPECT_EQ(error(query, key, value.narrow(1, 0, 1)),
            "[attention] value heads: expected 2 (from key), got 1");
  EXPECT_EQ(
      error(query, key, value, AttentionOptions().mask(Mask::attend(at::ones({7, 5}, at::kBool)))),
      "[attention] mask: expected Mask::attend to broadcast to [B, H, L, S] = [2, 4, 5, 7], got "
      "[7, 5]");
  EXPECT_EQ(error(query, key, value, AttentionOptions().dropout_p(1.5)),
            "[attention] dropout_p: expected a probability in [0, 1], got 1.5");
  EXPECT_EQ(error(query, key, value, AttentionOptions().scale(kInfinity)),
            "[attention] scale: expected a finite number, got inf");
  EXPECT_EQ(error(query, key, value, AttentionOptions().logit_clip(-1.0)),
            "[attention] logit_clip: expected a positive number, got -1");
  EXPECT_EQ(error(query, key, value, AttentionOptions().softcap(0.0)),
            "[attention] softcap: expected a positive number, got 0");
  EXPECT_EQ(error(query, key, value, AttentionOptions().softcap(1.0).logit_clip(1.0)),
            "[attention] softcap: expected at most one of logit_clip and softcap, got both");
  EXPECT_EQ(error(query, key, value, AttentionOptions().masked_score(NAN)),
            "[attention] masked_score: expected a finite number or −∞, got nan");
}

}  // namespace
}  // namespace attn
