#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <attn/modules/projected_multihead_attention.h>
#include <gtest/gtest.h>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::error_of;
using testing::is_near;
using testing::waves;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct AttentionScoreTest : ::testing::Test {
  AttentionScore score;
  at::Tensor query = waves({3, 1, 8}, 0.7, 0.1);
  at::Tensor keys = waves({3, 5, 8}, 0.9, 0.4);
};

TEST_F(AttentionScoreTest, DividesByTheRootOfTheFeatures) {
  const at::Tensor expected = query.matmul(keys.transpose(1, 2)) / std::sqrt(8.0);
  EXPECT_TRUE(is_near(score(query, keys), expected, 1e-15));
}

TEST_F(AttentionScoreTest, MasksAfterTheClip) {
  AttentionScore clipped(AttentionScoreOptions().use_tanh(true).C(10));
  const at::Tensor logits = clipped(1e3 * query, keys, bools({1, 1, 5}, {1, 0, 0, 0, 0}));
  EXPECT_EQ(logits[0][0][0].item<double>(), -kInfinity);
  EXPECT_LE(logits.narrow(2, 1, 4).abs().max().item<double>(), 10.0);
}

TEST_F(AttentionScoreTest, TakesTheDocumentedMaskForOneQuery) {
  const at::Tensor mask = bools({3, 5}, {0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1});
  EXPECT_TRUE(at::equal(score(query, keys, mask), score(query, keys, mask.unsqueeze(1))));
}

TEST_F(AttentionScoreTest, PrefersPythonsReadingWhereItExists) {
  const at::Tensor square = keys.narrow(0, 0, 1).narrow(1, 0, 3);  // [1, 3, D]: logits [1, 3, 3]
  const at::Tensor mask = bools({3, 3}, {0, 1, 1, 0, 0, 1, 0, 0, 0});
  EXPECT_TRUE(at::equal(score(square, square, mask).eq(-kInfinity), mask.unsqueeze(0)));
}

TEST_F(AttentionScoreTest, TakesAnyLeadingDimensions) {
  EXPECT_EQ(score(query[0], keys[0]).sizes(), at::IntArrayRef({1, 5}));
  EXPECT_EQ(score(query.unsqueeze(0), keys.unsqueeze(1)).sizes(), at::IntArrayRef({3, 3, 1, 5}));
}

TEST_F(AttentionScoreTest, LeavesInputsAndMaskAsTheyWere) {
  const at::Tensor mask = bools({1, 1, 5}, {1, 0, 0, 0, 0});
  const at::Tensor before = query.clone();
  score(query, keys, mask);
  EXPECT_TRUE(at::equal(query, before));
  EXPECT_TRUE(at::equal(mask, bools({1, 1, 5}, {1, 0, 0, 0, 0})));
}

TEST_F(AttentionScoreTest, NamesTheArgumentThatIsWrong) {
  EXPECT_EQ(error_of([&] { score(query[0][0], keys); }),
            "[AttentionScore] query: expected [..., L, D] with D at least 1, got [8]");
  EXPECT_EQ(error_of([&] { score(query, keys.narrow(2, 0, 7)); }),
            "[AttentionScore] key feature size: expected 8 (from query), got 7");
  EXPECT_EQ(error_of([&] { score(query.narrow(0, 0, 2), keys); }),
            "[AttentionScore] key: expected leading dimensions that broadcast with those of query, "
            "[2], got [3]");
  EXPECT_EQ(
      error_of([&] {
        score(query, keys, at::zeros({3, 4}, at::kBool));
      }),
      "[AttentionScore] mask: expected a shape that broadcasts to the logits [..., L, S] = [3, "
      "1, 5] or, with one query, to [..., S], got [3, 4]");
  EXPECT_EQ(
      error_of([&] {
        score(keys, keys, at::zeros({3, 5}, at::kBool));
      }),
      "[AttentionScore] mask: expected a shape that broadcasts to the logits [..., L, S] = [3, "
      "5, 5], got [3, 5]");
  EXPECT_EQ(error_of([&] {
              score(query, keys, at::zeros({3, 1, 5}, at::kLong));
            }),
            "[AttentionScore] mask: expected dtype Bool, got Long");
}

}  // namespace
}  // namespace attn
