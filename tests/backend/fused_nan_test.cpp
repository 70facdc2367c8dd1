// NaN and infinity on the fused backend: in blocked keys and values they reach no row that has an open key
// (C09 of the collection of reports), in open ones the rows that see them.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <attn/modules/xavier_multihead_attention.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "support/fused.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::fused;
using testing::is_near;
using testing::on_every_target;
using testing::waves;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// A few roundings of numbers of order 1.
constexpr double kFloat32Bound = 1e-6;

/// Masks that leave the first two of three keys to the last query, and NaN or ∞ in the third.
struct FusedNaN : ::testing::Test {
  static std::vector<std::pair<std::string, Mask>> masks(at::ScalarType dtype) {
    at::Tensor bias = at::zeros({1, 3}, dtype);
    bias.select(1, 2).fill_(-kInfinity);
    const at::Tensor open = bools({1, 3}, {1, 1, 0});
    return {{"attend", Mask::attend(open)},
            {"attend per head", Mask::attend(open.expand({1, 2, 1, 3}).contiguous())},
            {"block", Mask::block(open.logical_not())},
            {"bias", Mask::bias(bias)},
            {"causal", Mask::causal()}};
  }
};

TEST_F(FusedNaN, C09_NaNOrInfinityInABlockedKeyOrValueDoesNotLeak) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const auto& named : masks(dtype)) {
      const std::string& name = named.first;
      const Mask& mask = named.second;
      for (const double bad : {static_cast<double>(NAN), kInfinity, -kInfinity}) {
        const auto with = [&](double last) {
          return at::tensor({1.0, 2.0, last}, at::kDouble)
              .to(dtype)
              .reshape({1, 1, 3, 1})
              .expand({1, 2, 3, 1});
        };
        for (const int64_t L : {1, 2}) {  // the last of 2 sees two keys
          const at::Tensor query = at::zeros({1, 2, L, 1}, dtype);
          const auto rows = at::full({1, 2, 1, 1}, L == 1 && name == "causal" ? 1.0 : 1.5);
          on_every_target([&] {
            for (const double score : {-kInfinity, -1e9}) {
              const auto last = [&](const at::Tensor& key, const at::Tensor& value) {
                return attention(query, key, value, fused(mask).masked_score(score))
                    .output.narrow(2, L - 1, 1);
              };
              EXPECT_TRUE(is_near(last(with(0), with(bad)), rows, 0.0)) << name << bad << score;
              EXPECT_TRUE(is_near(last(with(bad), with(3)), rows, 0.0)) << name << bad << score;
              EXPECT_TRUE(is_near(last(with(bad), with(bad)), rows, 0.0)) << name << bad << score;
            }
          });
        }
      }
    }
  }
}

TEST_F(FusedNaN, C09_LongSequencesWithBlockedNaNGiveWhatTheyGiveWithout) {
  torch::manual_seed(2);
  const at::Tensor query = at::randn({2, 2, 90, 16});
  const at::Tensor key = at::randn({2, 2, 200, 16}), value = at::randn({2, 2, 200, 16});
  const at::Tensor padding = at::arange(200).lt(130).reshape({1, 1, 1, 200});
  const at::Tensor scattered = at::randn({200}).gt(0).reshape({1, 1, 1, 200});
  for (const at::Tensor& open : {padding, scattered}) {
    const at::Tensor keep = open.reshape({200, 1});
    const at::Tensor bad_key = key.masked_fill(keep.logical_not(), NAN);
    const at::Tensor bad_value = value.masked_fill(keep.logical_not(), kInfinity);
    const at::Tensor bias = at::zeros(open.sizes()).masked_fill(open.logical_not(), -kInfinity);
    for (const Mask& mask : {Mask::attend(open), Mask::block(open.logical_not()), Mask::bias(bias),
                             Mask::causal_bottom_right() & Mask::attend(open)}) {
      on_every_target([&] {
        const at::Tensor expected = attention(query, key, value, fused(mask)).output;
        EXPECT_TRUE(is_near(attention(query, bad_key, bad_value, fused(mask)).output, expected,
                            kFloat32Bound));
      });
    }
  }
}

TEST_F(FusedNaN, C09_AModuleKeepsThePromiseUnderItsDefaultBackend) {
  auto module = testing::fill_with_waves(XavierMultiheadAttention(8, 8, 8, 8, 2));
  const at::Tensor x = waves({2, 4, 8}, 0.7, 0.1, at::kFloat);
  at::Tensor bad = x.clone();
  bad.select(1, 3).fill_(NAN);
  const at::Tensor mask = bools({1, 1, 4}, {1, 1, 1, 0});
  const at::NoGradGuard no_grad;
  const auto run = [&](const at::Tensor& keys, Backend backend) {
    const BackendGuard guard(backend);
    return std::get<0>(module(x, keys, keys, mask));
  };
  EXPECT_TRUE(is_near(run(bad, Backend::kAuto), run(x, Backend::kAuto), kFloat32Bound));
  // Python, and so the reference, multiplies the NaN by a weight of zero.
  EXPECT_TRUE(run(bad, Backend::kReference).isnan().all().item<bool>());
}

TEST_F(FusedNaN, NaNInAnOpenKeyOrValueReachesTheRowsThatSeeItAlone) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor x = waves({1, 2, 70, 8}, 0.7, 0.1, dtype);
    at::Tensor bad = x.clone();
    bad.select(2, 50).fill_(NAN);
    on_every_target([&] {
      for (const auto& [key, value] : {std::pair{bad, x}, std::pair{x, bad}}) {
        const at::Tensor output = attention(x, key, value, fused(Mask::causal())).output;
        EXPECT_TRUE(output.narrow(2, 50, 20).isnan().all().item<bool>()) << dtype;
        EXPECT_TRUE(output.narrow(2, 0, 50).isfinite().all().item<bool>()) << dtype;
      }
    });
  }
}

}  // namespace
}  // namespace attn
