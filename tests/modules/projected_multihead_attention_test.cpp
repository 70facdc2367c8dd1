#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <attn/modules/projected_multihead_attention.h>
#include <gtest/gtest.h>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::error_of;
using testing::fill_with_waves;
using testing::is_near;
using testing::lower_triangle;
using testing::waves;

ProjectedMultiheadAttentionOptions two_heads() {
  return ProjectedMultiheadAttentionOptions(8).n_heads(2);
}

/// B = 3, H = 2, L = 4, S = 5: no two sizes agree, so that no mask fits by accident. Masks that say
/// the same must give the same bits, on the one backend that takes them all.
struct ProjectedTest : ::testing::Test {
  BackendGuard guard{Backend::kReference};
  ProjectedMultiheadAttention module = fill_with_waves(ProjectedMultiheadAttention(two_heads()));
  at::Tensor q = waves({3, 4, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor h = waves({3, 5, 8}, 0.9, 0.4, at::kFloat);

  std::string error(const at::Tensor& mask) {
    return error_of([&] { module(q, h, mask); });
  }
};

TEST_F(ProjectedTest, AttendsToTheQueriesThemselvesWithoutH) {
  EXPECT_TRUE(at::equal(module(q), module(q, q)));
}

TEST_F(ProjectedTest, BlocksWhereTheMaskIsTrue) {
  const at::Tensor blocked = bools({1, 1, 5}, {0, 0, 0, 1, 1});
  EXPECT_TRUE(is_near(module(q, h, blocked), module(q, h.narrow(1, 0, 3)), 1e-6));
}

TEST_F(ProjectedTest, ReadsTwoDimensionsAsKeysPerBatch) {
  const at::Tensor padding = bools({3, 5}, {0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1});
  EXPECT_TRUE(at::equal(module(q, h, padding), module(q, h, padding.unsqueeze(1))));
  const at::Tensor shared = padding.narrow(0, 1, 1);
  EXPECT_TRUE(at::equal(module(q, h, shared), module(q, h, shared.expand({3, 5}))));
}

TEST_F(ProjectedTest, LetsTheRankDecideEvenWhereSizesAgree) {
  const at::Tensor square = q.narrow(0, 0, 3).narrow(1, 0, 3);  // B = L = S = 3
  const at::Tensor mask = lower_triangle(3, 3).logical_not();
  EXPECT_TRUE(at::equal(module(square, square, mask), module(square, square, mask.unsqueeze(1))));
  EXPECT_FALSE(at::equal(module(square, square, mask), module(square, square, mask.unsqueeze(0))));
}

TEST_F(ProjectedTest, TakesEveryMaskThatPythonTakes) {
  const at::Tensor keys = bools({5}, {0, 0, 0, 1, 1});
  const at::Tensor expected = module(q, h, keys.expand({2, 3, 4, 5}));
  EXPECT_TRUE(at::equal(module(q, h, keys), expected));
  EXPECT_TRUE(at::equal(module(q, h, keys.expand({1, 4, 5})), expected));
  EXPECT_TRUE(at::equal(module(q, h, keys.expand({3, 1, 5})), expected));
  EXPECT_TRUE(at::equal(module(q, h, at::zeros({}, at::kBool)), module(q, h)));
  EXPECT_TRUE(at::equal(module(q, h, at::zeros({3, 4, 1}, at::kBool)), module(q, h)));
}

TEST_F(ProjectedTest, ReadsFourDimensionsHeadsFirst) {
  const at::Tensor second_head = bools({2, 1, 1, 5}, {0, 0, 0, 0, 0, 0, 0, 0, 1, 1});
  // The output shows the first head alone, columns 0 to 3 of project_out.
  module->MHA->project_out->weight.requires_grad_(false).narrow(1, 4, 4).zero_();
  EXPECT_TRUE(at::equal(module(q, h, second_head), module(q, h)));
}

TEST_F(ProjectedTest, RefusesMasksThatFitNowhere) {
  const std::string name = "[ProjectedMultiheadAttention] mask: expected ";
  EXPECT_EQ(error(at::zeros({4, 5}, at::kBool)),
            name +
                "two dimensions to be keys per batch, [3 or 1, 5] (pass a query-by-key mask as [1, "
                "L, S]), got [4, 5]");
  EXPECT_EQ(error(at::zeros({3, 4}, at::kBool)),
            name +
                "two dimensions to be keys per batch, [3 or 1, 5] (pass a query-by-key mask as [1, "
                "L, S]), got [3, 4]");
  const std::string shape =
      name + "a shape that broadcasts to [B, L, S] or, heads first, [H, B, L, S], got ";
  EXPECT_EQ(error(at::zeros({3, 1, 4, 5}, at::kBool)), shape + "[3, 1, 4, 5]");
  EXPECT_EQ(error(at::zeros({2, 4, 5}, at::kBool)), shape + "[2, 4, 5]");
  EXPECT_EQ(error(at::zeros({4}, at::kBool)), shape + "[4]");
  EXPECT_EQ(error(at::zeros({1, 2, 3, 4, 5}, at::kBool)), shape + "[1, 2, 3, 4, 5]");
  EXPECT_EQ(error(at::zeros({3, 4, 5}, at::kLong)), name + "dtype Bool, got Long");
  EXPECT_EQ(error(at::zeros({3, 4, 5})), name + "dtype Bool, got Float");
}

TEST_F(ProjectedTest, BroadcastsABatchOfOne) {
  EXPECT_TRUE(
      is_near(module(q, h.narrow(0, 0, 1)), module(q, h.narrow(0, 0, 1).expand({3, 5, 8})), 1e-6));
  EXPECT_TRUE(
      is_near(module(q.narrow(0, 0, 1), h), module(q.narrow(0, 0, 1).expand({3, 4, 8}), h), 1e-6));
  EXPECT_EQ(error_of([&] {
              module(q, at::cat({h, h}));
            }),
            "[ProjectedMultiheadAttention] h batch: expected 3 (from q) or 1, got 6");
}

TEST_F(ProjectedTest, MakesAFullyMaskedRowNaNAsPythonDoes) {
  const at::Tensor padding = bools({3, 1, 1}, {0, 1, 0}).expand({3, 1, 5});
  const at::Tensor out = module(q, h, padding);
  EXPECT_TRUE(out[1].isnan().all().item<bool>());
  EXPECT_TRUE(out[0].isfinite().all().item<bool>());
  EXPECT_TRUE(out[2].isfinite().all().item<bool>());
}

TEST_F(ProjectedTest, MakesAFullyMaskedRowZeroWhenAsked) {
  auto zero =
      fill_with_waves(ProjectedMultiheadAttention(two_heads().fully_masked(FullyMasked::kZero)));
  const at::Tensor padding = bools({3, 1, 1}, {0, 1, 0}).expand({3, 1, 5});
  const at::Tensor out = zero(q, h, padding);
  EXPECT_TRUE(at::equal(out[1], at::zeros({4, 8})));
  EXPECT_TRUE(at::equal(out[0], module(q, h, padding)[0]));
}

TEST_F(ProjectedTest, FollowsItsOptionsWhenTheyChange) {
  const at::Tensor padding = bools({3, 1, 1}, {0, 1, 0}).expand({3, 1, 5});
  module->options.fully_masked(FullyMasked::kZero);
  EXPECT_TRUE(at::equal(module(q, h, padding)[1], at::zeros({4, 8})));
}

TEST_F(ProjectedTest, RefusesOptionsThatCannotWork) {
  EXPECT_EQ(
      error_of(
          [] { ProjectedMultiheadAttention(ProjectedMultiheadAttentionOptions(10).n_heads(4)); }),
      "[ProjectedMultiheadAttention] embedding_dim: expected a multiple of n_heads = 4, got 10");
  EXPECT_EQ(error_of([] {
              ProjectedMultiheadAttention(ProjectedMultiheadAttentionOptions(8).n_heads(0));
            }),
            "[ProjectedMultiheadAttention] n_heads: expected at least 1, got 0");
  EXPECT_EQ(error_of([] { PreprojectedMultiheadAttention(-8); }),
            "[PreprojectedMultiheadAttention] embedding_dim: expected at least 1, got -8");
}

TEST_F(ProjectedTest, NamesTheInputThatIsWrong) {
  EXPECT_EQ(
      error_of([&] { module(at::Tensor()); }),
      "[ProjectedMultiheadAttention] q: expected [B, L, embedding_dim], got an undefined tensor");
  EXPECT_EQ(error_of([&] { module(q, h.narrow(2, 0, 7)); }),
            "[ProjectedMultiheadAttention] h: expected [B, S, embedding_dim], got [3, 5, 7]");
  EXPECT_EQ(
      error_of([&] { module(q, h.to(at::kDouble)); }),
      "[ProjectedMultiheadAttention] h: expected the dtype of the parameters, Float, got Double");
}

struct PreprojectedTest : ::testing::Test {
  PreprojectedMultiheadAttention module =
      fill_with_waves(PreprojectedMultiheadAttention(two_heads()));
  at::Tensor query = waves({3, 4, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor key = waves({3, 5, 8}, 0.9, 0.4, at::kFloat);
  at::Tensor value = waves({3, 5, 8}, 1.3, 0.8, at::kFloat);
};

TEST_F(PreprojectedTest, RefusesEveryMaskOfTwoDimensions) {
  for (const auto& shape : {std::vector<int64_t>{3, 5}, {1, 5}, {4, 5}}) {
    const std::string error =
        error_of([&] { module(query, key, value, at::zeros(shape, at::kBool)); });
    EXPECT_NE(
        error.find("mask: expected [B, 1, S] for keys per batch or [1, L, S] for keys per query"),
        std::string::npos)
        << error;
  }
}

TEST_F(PreprojectedTest, ClipsItsLogitsWhereItsScoreIsToldTo) {
  module->attentionScore->options.use_tanh(true).C(0.1);
  const auto heads = [](const at::Tensor& x) { return x.unflatten(-1, {2, 4}).transpose(1, 2); };
  AttentionScore score(AttentionScoreOptions().use_tanh(true).C(0.1));
  const at::Tensor weights = score(heads(query), heads(key)).softmax(-1);
  const at::Tensor expected =
      module->project_out(weights.matmul(heads(value)).transpose(1, 2).flatten(2));
  EXPECT_TRUE(is_near(module(query, key, value), expected, 1e-6));  // 8 terms below 1 in float32
  module->attentionScore->options.use_tanh(false);
  EXPECT_FALSE(is_near(module(query, key, value), expected, 1e-3));
}

TEST_F(PreprojectedTest, TakesTheDocumentedMask) {
  const at::Tensor padding = bools({3, 1, 5}, {0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1});
  EXPECT_TRUE(at::equal(module(query, key, value, padding),
                        module(query, key, value, padding.expand({3, 4, 5}))));
  EXPECT_FALSE(at::equal(module(query, key, value, padding), module(query, key, value)));
}

TEST_F(PreprojectedTest, MasksTheBatchThatValueAloneHas) {
  const at::Tensor q = query.narrow(0, 0, 1), k = key.narrow(0, 0, 1);
  const at::Tensor padding = bools({3, 1, 5}, {0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1});
  EXPECT_TRUE(is_near(module(q, k, value, padding),
                      module(q.expand({3, 4, 8}), k.expand({3, 5, 8}), value, padding), 1e-6));
}

TEST_F(PreprojectedTest, BroadcastsAmongAllThreeInputs) {
  const at::Tensor one = query.narrow(0, 0, 1);
  EXPECT_EQ(module(one, key, value.narrow(0, 0, 1)).sizes(), at::IntArrayRef({3, 4, 8}));
  EXPECT_EQ(module(one, key.narrow(0, 0, 1), value).sizes(), at::IntArrayRef({3, 4, 8}));
  EXPECT_EQ(
      error_of([&] { module(query, key.narrow(0, 0, 1), value.narrow(0, 0, 2)); }),
      "[PreprojectedMultiheadAttention] value batch: expected 3 (from query and key) or 1, got 2");
  EXPECT_EQ(error_of([&] { module(query, key, value.narrow(1, 0, 4)); }),
            "[PreprojectedMultiheadAttention] value length: expected 5 (from key), got 4");
}

}  // namespace
}  // namespace attn
