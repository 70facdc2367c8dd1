// LibTorch's scaled_dot_product_attention behind `attention`: the formula, its gradients, and what it
// refuses. Value sizes of D and of another size send it to its flash kernel and to plain operators.

#include <ATen/autocast_mode.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_unpack_dual.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <attn/functional.h>
#include <attn/modules/projected_multihead_attention.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/forward_grad.h>

#include "support/plain_attention.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::error_of;
using testing::fill_with_waves;
using testing::is_near;
using testing::lower_triangle;
using testing::PlainAttention;
using testing::waves;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Dot products of 3 terms below 1, a softmax over 7 keys and a mean, in float64: 100 roundings of
/// 1e-16. A gradient sums as many for each of up to 40 rows.
constexpr double kFloat64Bound = 1e-14;
constexpr double kFloat64GradientBound = 4e-13;

AttentionOptions by_libtorch(const Mask& mask = Mask::none()) {
  return AttentionOptions().backend(Backend::kLibTorch).mask(mask);
}

/// A mask with the keys that it opens and the bias that it adds, [L, S] or [B|1, H|1, L|1, S|1].
struct MaskCase {
  std::string name;
  Mask mask;
  at::Tensor open = {}, bias = {};
};

struct LibTorchTest : ::testing::Test {
  static constexpr int64_t B = 2, H = 4, Hk = 2, L = 5, S = 7, D = 3;
  at::Tensor query = waves({B, H, L, D}, 0.7, 0.1);
  at::Tensor key = waves({B, Hk, S, D}, 0.9, 0.4);
  at::Tensor same_size = waves({B, Hk, S, D}, 1.3, 0.8);
  at::Tensor other_size = waves({B, Hk, S, D + 2}, 1.3, 0.8);
  /// Batch 1 lies behind two keys alone.
  at::Tensor padding = bools({B, 1, 1, S}, {1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0});
  /// Queries 0 and 1 see nothing.
  at::Tensor late = lower_triangle(L, S, -2);
  at::Tensor heads = waves({1, H, L, S}, 0.2, 0.5).gt(-0.3);
  at::Tensor slope = waves({1, H, L, S}, 0.2, 0.5);

  std::vector<MaskCase> masks() const {
    at::Tensor gap = waves({L, S}, 0.4, 0.2);
    gap.select(0, 2).fill_(-kInfinity);
    const at::Tensor causal = lower_triangle(L, S);
    return {
        {"none", Mask::none()},
        {"causal", Mask::causal(), causal},
        {"bottom right", Mask::causal_bottom_right(), lower_triangle(L, S, S - L)},
        {"both", Mask::causal() & Mask::causal_bottom_right(), causal},
        {"padding", Mask::attend(padding), padding},
        {"blocked padding", Mask::block(padding.logical_not()), padding},
        {"late", Mask::attend(late), late},
        {"one row", Mask::attend(late.narrow(0, 4, 1)), late.narrow(0, 4, 1)},
        {"heads", Mask::attend(heads), heads},
        {"queries", Mask::block(heads.narrow(3, 0, 1)), heads.narrow(3, 0, 1).logical_not()},
        {"bias", Mask::bias(slope), {}, slope},
        {"bias of [L, S]", Mask::bias(gap), {}, gap},
        {"causal padding", Mask::causal() & Mask::attend(padding), padding.logical_and(causal)},
        {"everything", Mask::causal() & Mask::attend(padding) & Mask::block(late) & Mask::bias(gap),
         padding.logical_and(causal).logical_and(late.logical_not()), gap},
    };
  }

  static PlainAttention plain_of(const MaskCase& c, double scale) {
    const auto whole = [](const at::Tensor& t) { return t.defined() ? t.expand({B, H, L, S}) : t; };
    return {.scale = scale, .open = whole(c.open), .bias = whole(c.bias)};
  }
};

TEST_F(LibTorchTest, IsTheFormulaUnderEveryMask) {
  for (const MaskCase& c : masks()) {
    for (const at::Tensor& value : {same_size, other_size}) {
      PlainAttention plain = plain_of(c, 0.37);
      plain(query, key, value);
      const AttentionResult result = attention(query, key, value, by_libtorch(c.mask).scale(0.37));
      EXPECT_TRUE(is_near(result.output, plain.output, kFloat64Bound)) << c.name;
      EXPECT_EQ(result.backend, Backend::kLibTorch);
    }
  }
}

TEST_F(LibTorchTest, HasTheReferencesGradientsUnderEveryMask) {
  const auto gradients = [&](const at::Tensor& value, const Mask& mask, Backend backend) {
    const std::vector<at::Tensor> leaves = {query.detach().requires_grad_(),
                                            key.detach().requires_grad_(),
                                            value.detach().requires_grad_()};
    const at::Tensor output =
        attention(leaves[0], leaves[1], leaves[2], AttentionOptions().mask(mask).backend(backend))
            .output;
    return torch::autograd::grad({output}, leaves, {waves(output.sizes(), 0.3, 0.6)});
  };
  for (const MaskCase& c : masks()) {
    for (const at::Tensor& value : {same_size, other_size}) {
      const auto ours = gradients(value, c.mask, Backend::kLibTorch);
      const auto theirs = gradients(value, c.mask, Backend::kReference);
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_TRUE(is_near(ours[i], theirs[i], kFloat64GradientBound)) << c.name << ", " << i;
      }
    }
  }
}

TEST_F(LibTorchTest, GivesTheBiasItsGradient) {
  const auto gradient = [&](Backend backend) {
    const at::Tensor bias = slope.detach().requires_grad_();
    const auto options =
        AttentionOptions().mask(Mask::causal() & Mask::bias(bias)).backend(backend);
    const at::Tensor output = attention(query, key, same_size, options).output;
    return torch::autograd::grad({output}, {bias}, {waves(output.sizes(), 0.3, 0.6)})[0];
  };
  EXPECT_TRUE(
      is_near(gradient(Backend::kLibTorch), gradient(Backend::kReference), kFloat64GradientBound));
}

TEST_F(LibTorchTest, MakesRowsWithoutAKeyZeroAndGivesThemNoGradientInEveryDtype) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const at::Tensor& value : {same_size, other_size}) {
      const auto typed = [&](const at::Tensor& tensor) { return tensor.detach().to(dtype); };
      const at::Tensor q = typed(query).requires_grad_();
      const at::Tensor output =
          attention(q, typed(key), typed(value), by_libtorch(Mask::attend(late))).output;
      output.sum().backward();
      EXPECT_TRUE(output.narrow(2, 0, 2).eq(0).all().item<bool>()) << dtype;
      EXPECT_TRUE(q.grad().narrow(2, 0, 2).eq(0).all().item<bool>()) << dtype;
      EXPECT_TRUE(q.grad().isfinite().all().item<bool>()) << dtype;
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(attention(q, typed(key), typed(value), by_libtorch(Mask::attend(late)))
                      .output.narrow(2, 0, 2)
                      .eq(0)
                      .all()
                      .item<bool>());
    }
  }
}

TEST_F(LibTorchTest, LeavesEarlyQueriesWithoutKeysWhenThereAreMoreQueriesThanKeys) {
  const at::Tensor k = key.narrow(2, 0, 3), v = same_size.narrow(2, 0, 3);
  PlainAttention plain{.scale = 1 / std::sqrt(3.0),
                       .open = lower_triangle(L, 3, 3 - L).expand({B, H, L, 3})};
  plain(query, k, v);
  for (const Mask& mask :
       {Mask::causal_bottom_right(), Mask::causal() & Mask::causal_bottom_right()}) {
    const at::Tensor output = attention(query, k, v, by_libtorch(mask)).output;
    EXPECT_TRUE(is_near(output, plain.output, kFloat64Bound));
    EXPECT_EQ(output.select(2, 0).abs().max().item<double>(), 0.0);
  }
}

TEST_F(LibTorchTest, OpensEveryKeyToTheOneQueryOfDecoding) {
  const at::Tensor last = query.narrow(2, L - 1, 1);
  PlainAttention plain{.scale = 1 / std::sqrt(3.0)};
  plain(last, key, same_size);
  const auto options = by_libtorch(Mask::causal_bottom_right());
  EXPECT_TRUE(
      is_near(attention(last, key, same_size, options).output, plain.output, kFloat64Bound));
}

TEST_F(LibTorchTest, RoundsOnlyAsItsDtypeMust) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor q = query.to(dtype), k = key.to(dtype), v = same_size.to(dtype);
    PlainAttention plain{.scale = 1 / std::sqrt(3.0),
                         .open = lower_triangle(L, S).expand({B, H, L, S})};
    plain(q, k, v);
    // Outputs are means of values of at most 1. In half types the weights and the result are rounded
    // once, ε / 2 each; in float32 the weights carry the 20 ulp of LibTorch's exponential, above and
    // below the fraction bar, and some of the dot products.
    const double roundings = dtype == at::kFloat ? 64.0 : 2.0;
    EXPECT_TRUE(is_near(attention(q, k, v, by_libtorch(Mask::causal())).output, plain.output,
                        roundings * testing::epsilon(dtype)))
        << dtype;
  }
}

TEST_F(LibTorchTest, ConvertsABiasToTheDtypeOfTheQuery) {
  const auto result = attention(query.to(at::kFloat), key.to(at::kFloat), same_size.to(at::kFloat),
                                by_libtorch(Mask::causal() & Mask::bias(slope)));
  EXPECT_EQ(result.output.scalar_type(), at::kFloat);
}

TEST_F(LibTorchTest, FollowsAutocast) {
  PlainAttention plain{.scale = 1 / std::sqrt(3.0)};
  plain(query, key, same_size);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor output =
      attention(query.to(at::kFloat), key.to(at::kFloat), same_size.to(at::kFloat), by_libtorch())
          .output;
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
  // Values, weights and result are rounded, ε / 2 each; queries and keys below 1 move a logit of
  // three products by 3 · ε / √3, and a weight by twice as much.
  EXPECT_TRUE(is_near(output, plain.output, 6 * testing::epsilon(at::kBFloat16)));
}

TEST_F(LibTorchTest, ReadsHeadsWhereTheyLie) {
  const at::Tensor fused = waves({B, L, 3, H, D}, 0.3, 0.5);
  const auto part = [&](int64_t i) { return fused.select(2, i).transpose(1, 2); };  // [B, H, L, D]
  PlainAttention plain{.scale = 1 / std::sqrt(3.0)};
  plain(part(0), part(1), part(2));
  EXPECT_TRUE(is_near(attention(part(0), part(1), part(2), by_libtorch()).output, plain.output,
                      kFloat64Bound));
  const at::Tensor shared = key.narrow(1, 0, 1).expand({B, H, S, D});
  plain(query, shared, shared);
  EXPECT_TRUE(
      is_near(attention(query, shared, shared, by_libtorch()).output, plain.output, kFloat64Bound));
}

TEST_F(LibTorchTest, BroadcastsABatchOfOne) {
  ProjectedMultiheadAttention module(ProjectedMultiheadAttentionOptions(8).n_heads(2));
  module->to(at::kDouble);
  fill_with_waves(module);
  const auto run = [&](Backend backend, int64_t queries, int64_t keys) {
    const BackendGuard guard(backend);
    const at::Tensor q = waves({queries, 4, 8}, 0.7, 0.1).requires_grad_();
    const at::Tensor h = waves({keys, 5, 8}, 0.9, 0.4).requires_grad_();
    const at::Tensor output = module(q, h);
    const auto gradients = torch::autograd::grad({output.square().sum()}, {q, h});
    return std::vector<at::Tensor>{output, gradients[0], gradients[1]};
  };
  for (const auto& [queries, keys] : {std::pair{1, 3}, std::pair{3, 1}}) {
    const auto ours = run(Backend::kLibTorch, queries, keys);
    const auto theirs = run(Backend::kReference, queries, keys);
    for (size_t i = 0; i < ours.size(); ++i) {
      // Projections of 8 terms below 0.5 on either side: outputs and gradients below 100.
      EXPECT_TRUE(is_near(ours[i], theirs[i], 100 * kFloat64Bound)) << i;
    }
  }
}

/// The gradient of the squared norm of a gradient.
at::Tensor second_gradient(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           Backend backend) {
  const at::Tensor q = query.detach().requires_grad_();
  const at::Tensor output =
      attention(q, key, value, AttentionOptions().backend(backend)).output.square().sum();
  const at::Tensor gradient = torch::autograd::grad({output}, {q}, {}, {}, true)[0];
  return torch::autograd::grad({gradient.square().sum()}, {q})[0];
}

TEST_F(LibTorchTest, HasARightSecondGradientOrNone) {
  EXPECT_TRUE(is_near(second_gradient(query, key, other_size, Backend::kLibTorch),
                      second_gradient(query, key, other_size, Backend::kReference),
                      kFloat64GradientBound));
  const std::string error =
      error_of([&] { second_gradient(query, key, same_size, Backend::kLibTorch); });
  EXPECT_NE(error.find("derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward "
                       "is not implemented"),
            std::string::npos)
      << error;
}

TEST_F(LibTorchTest, LeavesForwardModeToTheReference) {
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  const auto dual = at::_make_dual(query, at::ones_like(query), static_cast<int64_t>(level));
  EXPECT_EQ(why_not(Backend::kLibTorch, dual, key, same_size), "it has no forward-mode derivative");
  const AttentionResult result = attention(dual, key, same_size);
  EXPECT_EQ(result.backend, Backend::kReference);
  EXPECT_TRUE(result.output._fw_grad(level).defined());
  torch::autograd::ForwardADLevel::release_idx(level);
}

TEST_F(LibTorchTest, NamesWhatItCannotExpress) {
  const auto why = [&](const AttentionOptions& options) {
    return why_not(Backend::kLibTorch, query, key, same_size, options).value_or("");
  };
  const AttentionOptions options;
  const auto masked = AttentionOptions().mask(Mask::attend(padding));
  const auto with = [](AttentionOptions o) { return o; };
  EXPECT_EQ(why(options), "");
  EXPECT_EQ(why(with(options).logit_clip(10)), "it has no logit_clip");
  EXPECT_EQ(why(with(options).softcap(10)), "it has no softcap");
  EXPECT_EQ(why(with(masked).masked_score(-1e9)),
            "it removes blocked keys and has no finite masked_score");
  EXPECT_EQ(why(with(masked).fully_masked(FullyMasked::kNaN)),
            "it gives zeros in a row with no open key, not NaN (fully_masked)");
  EXPECT_EQ(why(with(options).dropout_p(0.1)),
            "it drops other weights than Python does, without saving memory (dropout_p)");
  EXPECT_EQ(why(with(options).need_weights(true)), "it does not return the weights (need_weights)");
  EXPECT_EQ(why(with(options).need_logsumexp(true)),
            "it does not return the log-sum-exp (need_logsumexp)");
  EXPECT_EQ(why_not(Backend::kLibTorch, query, key.narrow(2, 0, 0), same_size.narrow(2, 0, 0)),
            "a size of query, key or value is 0");
  EXPECT_EQ(
      why_not(Backend::kLibTorch, query.to(at::kMeta), key.to(at::kMeta), same_size.to(at::kMeta)),
      "it infers no shapes in C++ (meta tensors)");
}

TEST_F(LibTorchTest, TakesOptionsThatChangeNothing) {
  const auto takes = [&](const AttentionOptions& options) {
    return !why_not(Backend::kLibTorch, query, key, same_size, options);
  };
  const auto nan = AttentionOptions().fully_masked(FullyMasked::kNaN);
  const auto with = [](AttentionOptions o) { return o; };
  EXPECT_TRUE(takes(with(nan).mask(Mask::causal())));  // key 0 is open to every query
  EXPECT_TRUE(takes(with(nan).mask(Mask::causal_bottom_right())));
  EXPECT_TRUE(takes(AttentionOptions().masked_score(-1e9)));
  EXPECT_TRUE(takes(AttentionOptions().masked_score(-1e9).mask(Mask::bias(slope))));
}

}  // namespace
}  // namespace attn
