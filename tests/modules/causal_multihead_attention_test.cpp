#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <attn/modules/causal_multihead_attention.h>
#include <gtest/gtest.h>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::error_of;
using testing::fill_with_waves;
using testing::is_near;
using testing::waves;

TEST(CausalMultiheadAttention, SplitsItsProjectionIntoThirds) {
  auto module = fill_with_waves(CausalMultiheadAttention(8, 2));
  const at::Tensor x = waves({2, 5, 8}, 0.5, 0.3, at::kFloat);
  const auto thirds = module->W_QKV(x).chunk(3, -1);
  const at::Tensor expected =
      module->W_O(multihead_masked_attention(thirds[0], thirds[1], thirds[2], 2));
  EXPECT_TRUE(is_near(module(x), expected, 1e-6));  // Linear::forward rounds once more than linear
}

TEST(CausalMultiheadAttention, LooksAtNoLaterToken) {
  auto module = fill_with_waves(CausalMultiheadAttention(8, 2));
  const at::Tensor x = waves({1, 4, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor changed = x.clone();
  changed.select(1, 3).add_(5.0);
  EXPECT_TRUE(at::equal(module(x).narrow(1, 0, 3), module(changed).narrow(1, 0, 3)));
  EXPECT_FALSE(at::equal(module(x).narrow(1, 3, 1), module(changed).narrow(1, 3, 1)));
}

TEST(CausalMultiheadAttention, RefusesWhatItCannotTake) {
  const std::string name = "[CausalMultiheadAttention] ";
  EXPECT_EQ(error_of([] { CausalMultiheadAttention(8, 0); }),
            name + "num_heads: expected at least 1, got 0");
  EXPECT_EQ(error_of([] { CausalMultiheadAttention(8, 3); }),
            name + "hidden_size: expected a multiple of num_heads = 3, got 8");
  CausalMultiheadAttention module(8, 2);
  EXPECT_EQ(error_of([&] {
              module(at::zeros({5, 8}));
            }),
            name + "x: expected [B, L, hidden_size], got [5, 8]");
  EXPECT_EQ(error_of([&] {
              module(at::zeros({2, 5, 4}));
            }),
            name + "x: expected [B, L, hidden_size], got [2, 5, 4]");
  EXPECT_EQ(error_of([&] {
              module(at::zeros({2, 5, 8}, at::kLong));
            }),
            name + "x: expected the dtype of the parameters, Float, got Long");
}

TEST(CausalFunctions, LetASingleQuerySeeTheFirstKeyAlone) {
  const at::Tensor x = waves({2, 5, 8}, 0.5, 0.3);
  const at::Tensor query = x.narrow(1, 0, 1);
  EXPECT_TRUE(is_near(multihead_masked_attention(query, x, x, 2), query, 1e-15));
  EXPECT_TRUE(is_near(single_head_masked_attention(query, x, x), query, 1e-15));
  EXPECT_FALSE(is_near(single_head_attention(query, x, x), query, 1e-3));
}

TEST(CausalFunctions, NameTheArgumentThatIsWrong) {
  const at::Tensor x = waves({2, 5, 8}, 0.5, 0.3);
  EXPECT_EQ(error_of([&] { single_head_attention(x[0], x, x); }),
            "[single_head_attention] Q: expected [B, L, features], got [5, 8]");
  EXPECT_EQ(
      error_of([&] { single_head_attention(x, x.narrow(2, 0, 7), x); }),
      "[single_head_attention] K: expected [B, S, features] with the batch and features of Q, "
      "got [2, 5, 7]");
  EXPECT_EQ(error_of([&] { single_head_masked_attention(x, x, x.narrow(1, 0, 4)); }),
            "[single_head_masked_attention] V: expected the shape of K, got [2, 4, 8]");
  EXPECT_EQ(error_of([&] { multihead_masked_attention(x, x, x, 0); }),
            "[multihead_masked_attention] num_heads: expected at least 1, got 0");
  EXPECT_EQ(error_of([&] { multihead_masked_attention(x, x, x, 3); }),
            "[multihead_masked_attention] Q features: expected a multiple of num_heads = 3, got 8");
  EXPECT_EQ(error_of([&] { multihead_masked_attention(x, x.to(at::kFloat), x, 2); }),
            "[multihead_masked_attention] K: expected the dtype of Q, Double, got Float");
}

}  // namespace
}  // namespace attn
