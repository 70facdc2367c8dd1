#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <attn/modules/einsum_multihead_attention.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::error_of;
using testing::fill_with_waves;
using testing::is_near;
using testing::lower_triangle;
using testing::waves;

struct EinsumTest : ::testing::Test {
  EinsumMultiheadAttention module = fill_with_waves(EinsumMultiheadAttention(8, 2));
  at::Tensor query = waves({3, 2, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor keys = waves({3, 5, 8}, 0.9, 0.4, at::kFloat);
  at::Tensor values = waves({3, 5, 8}, 1.3, 0.8, at::kFloat);

  at::Tensor masked(const at::Tensor& mask) { return module(values, keys, query, mask); }
  std::string error(const at::Tensor& mask) {
    return error_of([&] { masked(mask); });
  }
};

TEST_F(EinsumTest, TakesValuesThenKeysThenQuery) {
  const at::Tensor first_key = lower_triangle(2, 5).narrow(0, 0, 1);  // [1, S]: key 0 alone
  const at::Tensor value = module->values(values.narrow(1, 0, 1).reshape({3, 1, 2, 4}));
  const at::Tensor expected = module->fc_out(value.reshape({3, 1, 8})).expand({3, 2, 8});
  EXPECT_TRUE(is_near(masked(first_key), expected, 1e-6));  // 8 terms below 1 in float32
}

TEST_F(EinsumTest, BlocksWhereTheMaskIsZeroWhateverItsDtype) {
  const at::Tensor open = lower_triangle(2, 5, 1);
  const at::Tensor expected = masked(open);
  EXPECT_TRUE(at::equal(masked(open.to(at::kLong)), expected));
  EXPECT_TRUE(at::equal(masked(open.to(at::kFloat).mul(-7)), expected));
  EXPECT_TRUE(at::equal(masked(open.to(at::kFloat).masked_fill(open, NAN)), expected));
  EXPECT_FALSE(at::equal(masked(open.logical_not()), expected));
}

TEST_F(EinsumTest, TakesTwoAndFourDimensions) {
  const at::Tensor open = lower_triangle(2, 5, 1);
  const at::Tensor expected = masked(open.expand({3, 2, 2, 5}));
  EXPECT_TRUE(at::equal(masked(open), expected));
  EXPECT_TRUE(at::equal(masked(open.expand({1, 1, 2, 5})), expected));
  const at::Tensor padding = open.narrow(0, 0, 1).reshape({1, 1, 1, 5}).expand({3, 1, 1, 5});
  EXPECT_TRUE(at::equal(masked(padding), masked(padding.expand({3, 2, 2, 5}))));
}

TEST_F(EinsumTest, RefusesMasksThatPythonMisreads) {
  const std::string advice =
      "[EinsumMultiheadAttention] mask: expected [L, S] or four dimensions that broadcast to [B, "
      "H, "
      "L, S] (pass a mask per batch as [B, 1, L, S]), got ";
  EXPECT_EQ(error(at::ones({2, 2, 5})), advice + "[2, 2, 5]");
  EXPECT_EQ(error(at::ones({5})), advice + "[5]");
  EXPECT_EQ(error(at::ones({3, 5})), advice + "[3, 5]");
  EXPECT_EQ(error(at::ones({2, 1, 2, 5})), advice + "[2, 1, 2, 5]");
}

TEST_F(EinsumTest, RefusesAnAdditiveMaskThatWouldBeInverted) {
  for (const double blocking : {-std::numeric_limits<double>::infinity(), -3.4e38, -1e4}) {
    at::Tensor additive = at::zeros({2, 5});
    additive[0][4] = blocking;
    EXPECT_EQ(
        error(additive),
        "[EinsumMultiheadAttention] mask: expected zero to block and other values to attend, got "
        "values of -10000 or less (an additive mask would be inverted: pass mask.eq(0))");
  }
}

TEST_F(EinsumTest, MakesAFullyMaskedRowThePlainMeanInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    module->to(dtype);
    const at::Tensor v = values.to(dtype);
    const at::Tensor out = module(v, keys.to(dtype), query.to(dtype), at::zeros({2, 5}));
    const at::Tensor mean = module->values(v.reshape({3, 5, 2, 4})).to(at::kDouble).mean(1);
    const at::Tensor expected =
        at::linear(mean.reshape({3, 1, 8}), module->fc_out->weight.to(at::kDouble),
                   module->fc_out->bias.to(at::kDouble));
    // Weights, mean and output are rounded once each: three roundings of values below 1.
    EXPECT_TRUE(is_near(out, expected.expand({3, 2, 8}), 3 * testing::epsilon(dtype))) << dtype;
  }
}

TEST_F(EinsumTest, ScalesByTheEmbeddingNotTheHead) {
  const at::Tensor q = module->queries(query.reshape({3, 2, 2, 4})).transpose(1, 2);
  const at::Tensor k = module->keys(keys.reshape({3, 5, 2, 4})).transpose(1, 2);
  const at::Tensor v = module->values(values.reshape({3, 5, 2, 4})).transpose(1, 2);
  const at::Tensor weights = q.matmul(k.transpose(2, 3)).div(std::sqrt(8.0)).softmax(-1);
  const at::Tensor expected = module->fc_out(weights.matmul(v).transpose(1, 2).reshape({3, 2, 8}));
  EXPECT_TRUE(is_near(module(values, keys, query), expected, 1e-6));
}

TEST_F(EinsumTest, RefusesWhatPythonBroadcastsOrReshapesInSilence) {
  EXPECT_EQ(error_of([&] { module(values.narrow(1, 0, 1), keys, query); }),
            "[EinsumMultiheadAttention] values length: expected 5 (from keys), got 1");
  EXPECT_EQ(error_of([&] { module(values, keys.narrow(1, 0, 1), query); }),
            "[EinsumMultiheadAttention] values length: expected 1 (from keys), got 5");
  EXPECT_EQ(error_of([&] {
              module(values, at::zeros({1, 5, 16}), at::zeros({2, 2, 8}));
            }),
            "[EinsumMultiheadAttention] keys: expected [B, S, embed_size], got [1, 5, 16]");
  EXPECT_EQ(error_of([&] { module(values.narrow(0, 0, 1), keys, query); }),
            "[EinsumMultiheadAttention] values batch: expected 3 (from query), got 1");
}

TEST_F(EinsumTest, RefusesOptionsThatCannotWork) {
  EXPECT_EQ(error_of([] { EinsumMultiheadAttention(8, 0); }),
            "[EinsumMultiheadAttention] num_heads: expected at least 1, got 0");
  EXPECT_EQ(error_of([] { EinsumMultiheadAttention(0, 1); }),
            "[EinsumMultiheadAttention] embed_size: expected at least 1, got 0");
  EXPECT_EQ(error_of([] { EinsumMultiheadAttention(8, 3); }),
            "[EinsumMultiheadAttention] embed_size: expected a multiple of num_heads = 3, got 8");
}

}  // namespace
}  // namespace attn
