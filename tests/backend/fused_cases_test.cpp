// What went wrong in other attention code, on every SIMD target of the fused backend; the number is that of
// the collection of reports. Outcomes are exact arithmetic, or plain loops where said.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <attn/attn.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "support/fused.h"
#include "support/plain_attention.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::fused;
using testing::is_near;
using testing::lower_triangle;
using testing::on_every_target;
using testing::PlainAttention;
using testing::waves;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// A few roundings of numbers of order 1.
constexpr double kFloat32Bound = 1e-6, kFloat64Bound = 1e-14;
/// The figures of the collection are printed with 12 digits.
constexpr double kPrinted = 1e-11;

at::Tensor doubles(std::vector<double> numbers) { return at::tensor(numbers, at::kDouble); }

/// The weights that one query gives to keys with these logits.
at::Tensor weights_of(const std::vector<double>& logits, AttentionOptions options = fused(),
                      at::ScalarType dtype = at::kFloat) {
  const auto count = static_cast<int64_t>(logits.size());
  const at::Tensor key = doubles(logits).to(dtype).reshape({1, 1, count, 1});
  const at::Tensor one = at::ones({1, 1, 1, 1}, dtype);
  return attention(one, key, key, options.scale(1.0).need_weights(true)).weights.flatten();
}

/// The mean of the values that the mask leaves to each query: all logits are 0.
at::Tensor means_of(const at::Tensor& value, int64_t queries, const Mask& mask) {
  const at::Tensor query = at::zeros({1, 1, queries, 4}, value.options());
  const at::Tensor key = at::zeros({1, 1, value.size(2), 4}, value.options());
  return attention(query, key, value, fused(mask)).output.select(3, 0).flatten();
}

TEST(FusedCases, C03_AFullyMaskedRowIsWhatItsRuleSays) {
  on_every_target([] {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const Mask& all : {Mask::block(at::ones({1, 3}, at::kBool)),
                              Mask::attend(at::zeros({1, 1, 1, 3}, at::kBool))}) {
        const auto weights = [&](AttentionOptions o) { return weights_of({0, 1, 2}, o, dtype); };
        const at::Tensor third = at::full({3}, 1.0 / 3, at::kDouble);
        for (const double score : {-1e9, -1e20, -1e20 / std::sqrt(512.0), -1e300, 1e300}) {
          // 1/3 is rounded to the sums' type and then to the dtype.
          EXPECT_TRUE(
              is_near(weights(fused(all).masked_score(score)), third, testing::epsilon(dtype) / 2))
              << dtype << " " << score;
        }
        EXPECT_TRUE(at::equal(weights(fused(all)), at::zeros({3}, dtype)));
        const auto nan = weights(fused(all).fully_masked(FullyMasked::kNaN));
        EXPECT_TRUE(nan.isnan().all().item<bool>());
      }
    }
    // A fill that is added, not written, keeps what the logits say.
    const Mask added = Mask::bias(at::full({1, 3}, -1e9, at::kDouble));
    const at::Tensor kept = doubles({0, 1, 2}).softmax(0);
    EXPECT_TRUE(is_near(weights_of({0, 1, 2}, fused(added), at::kDouble), kept, 2e-7));  // ulp(1e9)
  });
}

TEST(FusedCases, C03_AFullyMaskedRowIsThePlainMeanOfAllValuesHoweverMany) {
  torch::manual_seed(1);
  const at::Tensor value = at::randn({1, 2, 1000, 6}), key = at::randn({1, 2, 1000, 8});
  const at::Tensor expected = value.to(at::kDouble).mean(2, true);  // [B, H, 1, Dv]
  on_every_target([&] {
    for (const int64_t L : {1, 2, 40}) {
      const at::Tensor query = at::randn({1, 2, L, 8});
      for (const Mask& mask :
           {Mask::block(at::ones({L, 1}, at::kBool)), Mask::attend(at::zeros({1, 1000}, at::kBool)),
            Mask::causal() & Mask::block(lower_triangle(L, 1000))}) {
        for (const double score : {-1e9, -1e20, -1e20 / std::sqrt(512.0), -1e300}) {
          // Two sums of 1000 terms below 4, divided.
          EXPECT_TRUE(is_near(attention(query, key, value, fused(mask).masked_score(score)).output,
                              expected.expand({1, 2, L, 6}), 5e-6))
              << L << " " << score;
        }
      }
    }
  });
}

TEST(FusedCases, C03_OpenLogitsBelowTheMaskedScoreLoseAsInTheDocuments) {
  on_every_target([] {
    const auto weights = [](std::vector<double> logits, double score, const Mask& mask) {
      return weights_of(logits, fused(mask).masked_score(score));
    };
    const Mask second = Mask::block(bools({1, 2}, {0, 1}));
    EXPECT_TRUE(is_near(weights({-1e10, 5}, -1e9, second), doubles({0, 1}), 0.0));
    EXPECT_TRUE(is_near(weights({-1e9, 5}, -1e9, second), doubles({0.5, 0.5}), 0.0));
    EXPECT_TRUE(is_near(weights({0, 5}, -1e9, second), doubles({1, 0}), 0.0));
    const double low = 1.0 / (1.0 + std::exp(1.0));
    EXPECT_TRUE(is_near(weights({-3, 5}, -2.0, second), doubles({low, 1 - low}), kFloat32Bound));
  });
}

TEST(FusedCases, C05_CausalIsAlignedWhereItsNameSays) {
  on_every_target([] {
    const auto run = [](int64_t queries, int64_t keys, const Mask& mask) {
      return means_of(at::arange(keys, at::kDouble).reshape({1, 1, keys, 1}), queries, mask);
    };
    EXPECT_TRUE(is_near(run(2, 5, Mask::causal()), doubles({0, 0.5}), 0.0));
    EXPECT_TRUE(is_near(run(2, 5, Mask::causal_bottom_right()), doubles({1.5, 2}), 0.0));
    EXPECT_TRUE(is_near(run(5, 2, Mask::causal()), doubles({0, .5, .5, .5, .5}), 0.0));
    EXPECT_TRUE(is_near(run(5, 2, Mask::causal_bottom_right()), doubles({0, 0, 0, 0, .5}), 0.0));
  });
}

TEST(FusedCases, C08_ASlidingWindowMayBlockWholeTilesInFrontOfItsKeys) {
  const at::Tensor window = lower_triangle(600, 600).logical_xor(lower_triangle(600, 600, -10));
  const at::Tensor i = at::arange(600, at::kDouble);
  const at::Tensor expected = (i / 2).where(i.lt(9), i - 4.5);
  on_every_target([&] {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const at::Tensor value = i.to(dtype).reshape({1, 1, 600, 1});
      // Sums of whole numbers are exact; 1/n and its product with one are rounded.
      EXPECT_TRUE(is_near(means_of(value, 600, Mask::attend(window)), expected,
                          600 * testing::epsilon(dtype)));
    }
  });
}

TEST(FusedCases, C11_AnyStridesGiveTheSameResult) {
  const at::Tensor base = waves({2, 3, 5, 8}, 0.7, 0.1);
  PlainAttention plain{.scale = 1 / std::sqrt(8.0)};
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
  const at::Tensor shared = waves({1, 1, 33, 8}, 0.9, 0.4).expand({2, 3, 33, 8});
  PlainAttention of_shared{.scale = 1 / std::sqrt(8.0)};
  of_shared(base, shared, shared);
  on_every_target([&] {
    for (const at::Tensor& x : layouts) {
      EXPECT_TRUE(is_near(attention(x, x, x, fused()).output, plain.output, kFloat64Bound));
    }
    EXPECT_TRUE(
        is_near(attention(base, shared, shared, fused()).output, of_shared.output, kFloat64Bound));
  });
}

TEST(FusedCases, C14_SizesOffEveryTileAreRight) {
  const std::vector<std::pair<int64_t, int64_t>> lengths = {{1, 1},  {1, 33},  {33, 1},  {17, 257},
                                                            {2, 65}, {31, 32}, {65, 129}};
  for (const int64_t D : {1, 3, 7, 16, 17, 63, 80, 96, 128, 224, 256, 520}) {
    for (const auto& pair : lengths) {
      const int64_t L = pair.first, S = pair.second;
      for (const int64_t Dv : {D, D / 2 + 1}) {
        const at::Tensor query = waves({1, 2, L, D}, 0.7, 0.1, at::kFloat);
        const at::Tensor key = waves({1, 2, S, D}, 0.9, 0.4, at::kFloat);
        const at::Tensor value = waves({1, 2, S, Dv}, 1.3, 0.8, at::kFloat);
        PlainAttention plain{.scale = 1 / std::sqrt(static_cast<double>(D))};
        plain(query, key, value);
        on_every_target([&] {
          // The collection's bound, which LibTorch's own attention keeps.
          EXPECT_TRUE(is_near(attention(query, key, value, fused()).output, plain.output, 2e-6))
              << D << " " << Dv << " " << L << " " << S;
        });
      }
    }
  }
}

TEST(FusedCases, C15_SizesOfZeroHaveShapesAndNoKeysGiveZero) {
  on_every_target([] {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const auto run = [&](int64_t B, int64_t L, int64_t S, const Mask& mask) {
        return attention(at::ones({B, 2, L, 3}, dtype), at::ones({B, 2, S, 3}, dtype),
                         at::ones({B, 2, S, 5}, dtype),
                         fused(mask).need_weights(true).need_logsumexp(true));
      };
      for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::causal_bottom_right(),
                               Mask::attend(at::ones({1, 1}, at::kBool))}) {
        for (const int64_t L : {1, 4}) {
          const auto without_keys = run(2, L, 0, mask);
          EXPECT_TRUE(at::equal(without_keys.output, at::zeros({2, 2, L, 5}, dtype)));
          EXPECT_EQ(without_keys.weights.sizes(), at::IntArrayRef({2, 2, L, 0}));
          EXPECT_TRUE(without_keys.logsumexp.eq(-kInfinity).all().item<bool>());
        }
        EXPECT_EQ(run(2, 0, 4, mask).output.sizes(), at::IntArrayRef({2, 2, 0, 5}));
        EXPECT_EQ(run(0, 4, 4, mask).output.sizes(), at::IntArrayRef({0, 2, 4, 5}));
        EXPECT_EQ(run(0, 0, 0, mask).logsumexp.sizes(), at::IntArrayRef({0, 2, 0}));
      }
    }
  });
}

TEST(FusedCases, C15_WithoutKeysAModuleGivesItsBias) {
  auto einsum = testing::fill_with_waves(EinsumMultiheadAttention(8, 2));
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat), none = x.narrow(1, 0, 0);
  const at::NoGradGuard no_grad;
  const BackendGuard guard(Backend::kFused);
  EXPECT_TRUE(at::equal(einsum(none, none, x), einsum->fc_out->bias.expand({2, 3, 8})));
}

TEST(FusedCases, C17_MoreKeysAndQueriesThan16BitsCount) {
  on_every_target([] {
    for (const int64_t length : {32769, 65537}) {
      const auto n = static_cast<double>(length);
      at::Tensor value = at::ones({1, 1, length, 1});
      value[0][0][length - 1][0] = n;
      const at::Tensor expected = doubles({(2 * n - 1) / n});
      EXPECT_TRUE(is_near(means_of(value, 1, Mask::none()), expected, 4e-7));  // an ulp of 2, twice
      EXPECT_TRUE(is_near(means_of(value, 40, Mask::none()), expected.expand({40}), 4e-7));
      const at::Tensor one_key = at::full({1, 1, 1, 1}, n);
      EXPECT_TRUE(is_near(means_of(one_key, length, Mask::none()),
                          one_key.flatten().expand({length}), 0.0));
    }
  });
}

TEST(FusedCases, C18_LargeLogitsNeitherOverflowNorLoseTheirDifference) {
  const double larger = 1.0 / (1.0 + std::exp(-1.0));
  const std::vector<std::pair<std::vector<double>, std::vector<double>>> cases = {
      {{151.29, 150.29}, {larger, 1 - larger}},
      {{1e4, -1e4}, {1, 0}},
      {{-1e4, -1e4 - 1}, {larger, 1 - larger}},
      {{3e38, 0}, {1, 0}},
      {{-3e38, -3e38}, {0.5, 0.5}}};
  on_every_target([&] {
    for (const auto& [logits, expected] : cases) {
      // 151.29 − 150.29 is 1 but for 2^-17 in float32.
      EXPECT_TRUE(is_near(weights_of(logits), doubles(expected), 4e-6));
      EXPECT_TRUE(is_near(weights_of(logits, fused(), at::kDouble), doubles(expected), 1e-13));
    }
  });
}

TEST(FusedCases, C19_ClippingLargeLogitsSaturatesAndGivesNoNaN) {
  on_every_target([] {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      for (const double u : {0.3, 1.0, 100.0, 1e3, 5e3, 1e4, -1e4, 3e38, kInfinity, -kInfinity}) {
        const at::Tensor key = at::full({1, 1, 1, 1}, u, dtype), one = at::ones_like(key);
        const auto logit = [&](AttentionOptions options) {
          return attention(one, key, one, options.need_logsumexp(true)).logsumexp.item<double>();
        };
        const double exact = key.item<double>();
        const double bound = 50 * 4 * testing::epsilon(dtype);  // tanh is good to some ulp
        EXPECT_NEAR(logit(fused().logit_clip(50.0)), 50 * std::tanh(exact), bound) << u;
        EXPECT_NEAR(logit(fused().softcap(50.0)), 50 * std::tanh(exact / 50), bound) << u;
      }
    }
  });
}

TEST(FusedCases, C20_HalfPrecisionLogitsMayLieBeyondItsRange) {
  on_every_target([] {
    for (const int64_t queries : {1, 3, 40}) {
      const at::Tensor query = at::full({1, 1, queries, 128}, 256.0, at::kHalf);
      const at::Tensor key =
          doubles({256, 255}).to(at::kHalf).reshape({1, 1, 2, 1}).expand({1, 1, 2, 128});
      const at::Tensor value = doubles({1, 2}).to(at::kHalf).reshape({1, 1, 2, 1});
      const auto result = attention(query, key, value, fused().need_weights(true));
      EXPECT_TRUE(is_near(result.output.flatten(), at::ones({queries}), 0.0));
      EXPECT_TRUE(is_near(result.weights, doubles({1, 0}).expand({1, 1, queries, 2}), 0.0));
    }
  });
}

TEST(FusedCases, C27_AskingForWeightsLeavesTheOutputOfAModuleAlone) {
  auto module = testing::fill_with_waves(XavierMultiheadAttention(8, 8, 8, 8, 2));
  const at::Tensor x = waves({2, 3, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor mask = lower_triangle(3, 3).repeat({2, 1, 1});
  mask[1][2].fill_(false);
  const at::NoGradGuard no_grad;
  const BackendGuard guard(Backend::kFused);
  on_every_target([&] {
    const auto [output, weights] = module(x, x, x, mask, true);
    EXPECT_TRUE(at::equal(output, std::get<0>(module(x, x, x, mask, false))));
    EXPECT_TRUE(is_near(weights[1].select(1, 2), at::full({2, 3}, 1.0 / 3), 1e-7));
  });
}

TEST(FusedCases, C35_ABlockDiagonalMaskEqualsSeparateRuns) {
  const std::vector<int64_t> cuts = {0, 128, 256, 384, 543, 600};
  const at::Tensor x = waves({1, 2, 600, 80}, 0.7, 0.1);
  at::Tensor open = at::zeros({600, 600}, at::kBool);
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const int64_t count = cuts[i + 1] - cuts[i];
    open.narrow(0, cuts[i], count).narrow(1, cuts[i], count).fill_(true);
    PlainAttention plain{.scale = 1 / std::sqrt(80.0)};
    const at::Tensor part = x.narrow(2, cuts[i], count);
    plain(part, part, part);
    parts.push_back(plain.output);
  }
  const at::Tensor separate = at::cat(parts, 2);
  on_every_target([&] {
    EXPECT_TRUE(
        is_near(attention(x, x, x, fused(Mask::attend(open))).output, separate, kFloat64Bound));
    const at::Tensor y = x.to(at::kFloat);
    // Inputs below 1 lose 2^-25 each, and a logit of 80 products up to √80 · 2^-24.
    EXPECT_TRUE(is_near(attention(y, y, y, fused(Mask::attend(open))).output, separate, 3e-6));
  });
}

}  // namespace
}  // namespace attn
