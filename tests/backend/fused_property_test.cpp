// Random calls of `attention` on every SIMD target: sizes, dtypes, strides, masks and options at once, held
// against plain loops.
//
// A failure prints the seed of its call; ATTN_TEST_SEED=<seed> ATTN_TEST_CASES=1 runs it alone.

#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <attn/modules/projected_multihead_attention.h>
#include <gtest/gtest.h>

#include "support/fused.h"
#include "support/random_call.h"

namespace attn {
namespace {

using testing::Dice;
using testing::for_dice;
using testing::lay;
using testing::Layout;
using testing::on_every_target;
using testing::PlainAttention;
using testing::random_layout;
using testing::RandomMask;
using testing::RandomSizes;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLowestFloat = std::numeric_limits<float>::lowest();

/// How far results may lie from plain ones, number by number.
class Bounds {
 public:
  /// `size` is that of the logits.
  Bounds(at::ScalarType dtype, double size, int64_t head_dim, int64_t keys) {
    const double unit = dtype == at::kDouble ? 0x1p-53 : 0x1p-24;
    // A logit gathers √D roundings of its own size at random, ten times that at the extreme, and so its
    // weight; bias, exponential and division add a few. Up to 128 equal weights that are summed one after
    // another err to one side, by half a unit each; value sums gather no more. The plain loops, in
    // float64, sum up all of them.
    const double plain_sums = dtype == at::kDouble ? static_cast<double>(keys) : 0.0;
    weight_ = unit * (10.0 * std::sqrt(static_cast<double>(head_dim)) * size + 100.0 + plain_sums);
    const bool is_half = dtype == at::kHalf || dtype == at::kBFloat16;
    rounding_ = is_half ? testing::epsilon(dtype) / 2 : 0.0;
    // bfloat16's weights are rounded before the values are multiplied.
    value_ = weight_ + (dtype == at::kBFloat16 ? rounding_ : 0.0);
    step_ =
        dtype == at::kHalf ? 0x1p-25 : 1e-37;  // of subnormal numbers; no weight lies below e^-87
  }

  /// A mean of values is off by what its weights are off by, times the mean of the values' sizes.
  void expect_output(const at::Tensor& output, const PlainAttention& plain,
                     const at::Tensor& value_sizes) const {
    expect(output, plain.output,
           value_sizes.mul(value_).add(plain.output.abs().mul(rounding_)).add(step_), "output");
  }
  void expect_weights(const at::Tensor& weights, const PlainAttention& plain) const {
    expect(weights, plain.weights, plain.weights.mul(weight_ + rounding_).add(step_), "weights");
  }
  void expect_logsumexp(const at::Tensor& logsumexp, const PlainAttention& plain) const {
    expect(logsumexp, plain.logsumexp, plain.logsumexp.abs().clamp_min(1.0).mul(weight_),
           "logsumexp");
  }

 private:
  static void expect(const at::Tensor& actual, const at::Tensor& expected, const at::Tensor& bound,
                     const char* what) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
    const at::Tensor a = actual.to(at::kDouble);
    const at::Tensor near = (a - expected).abs().le(bound);
    const at::Tensor same = a.eq(expected).logical_or(a.isnan().logical_and(expected.isnan()));
    const at::Tensor wrong = near.logical_or(same).logical_not().flatten().nonzero().flatten();
    if (wrong.numel() == 0) return;
    const int64_t first = wrong[0].item<int64_t>();
    FAIL() << wrong.numel() << " of " << a.numel() << " in " << what << ", the first at " << first
           << ": " << a.flatten()[first].item<double>() << " instead of "
           << expected.flatten()[first].item<double>() << ", bound "
           << bound.flatten()[first].item<double>();
  }

  double weight_, rounding_, value_, step_;
};

/// A call of `attention` and what it must give.
struct RandomCall {
  explicit RandomCall(Dice& dice)
      : sizes(dice),
        mask(sizes, dice),
        dtype(dice.pick({at::kFloat, at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})),
        key_layout(random_layout(dice)),
        value_layout(random_layout(dice)) {
    const auto& s = sizes;
    query = lay(at::randn({s.B, s.H, s.L, s.D}).to(dtype), random_layout(dice));
    key_values = at::randn({s.B, s.Hk, s.S, s.D}).to(dtype);
    value_values = at::randn({s.B, s.Hk, s.S, s.Dv}).to(dtype);
    key = lay(key_values, key_layout), value = lay(value_values, value_layout);

    plain = {
        .scale = 1.0 / std::sqrt(static_cast<double>(s.D)),
        .open = mask.open,
        .bias = mask.bias,
        .masked_score = dice.pick({-kInfinity, -kInfinity, -1e9, -1e20, kLowestFloat, -2.0, 1.0}),
        .fully_masked_is_nan = dice.chance(0.5)};
    options.backend(Backend::kFused)
        .mask(mask.mask)
        .masked_score(plain.masked_score)
        .fully_masked(plain.fully_masked_is_nan ? FullyMasked::kNaN : FullyMasked::kZero)
        .need_weights(dice.chance(0.3))
        .need_logsumexp(dice.chance(0.5));
    if (dice.chance(0.3)) {
      plain.scale *= dice.pick({0.5, 2.0, -1.0});
      options.scale(plain.scale);
    }
    double size = std::max(1.0, std::abs(plain.scale) * std::sqrt(static_cast<double>(s.D)));
    if (dice.chance(0.3)) {
      const double limit = dice.pick({0.5, 2.0, 10.0});
      if (dice.chance(0.5)) {
        plain.logit_clip = limit, options.logit_clip(limit);
        size *= std::max(1.0, limit);  // its tanh is off by as much as a logit
      } else {
        plain.softcap = limit, options.softcap(limit);
      }
    }
    without_batch = s.B == 1 && dice.chance(0.3);
    bounds = Bounds(dtype, size, s.D, s.S);
    plain(query, key, value);
    value_sizes =
        at::matmul(plain.weights,
                   value.to(at::kDouble).abs().repeat_interleave(s.H / s.Hk, 1));  // [B, H, L, Dv]
  }

  AttentionResult run() const {
    if (!without_batch) return attention(query, key, value, options);
    AttentionResult result = attention(query[0], key[0], value[0], options);
    for (at::Tensor* tensor : {&result.output, &result.weights, &result.logsumexp}) {
      if (tensor->defined()) *tensor = tensor->unsqueeze(0);
    }
    return result;
  }

  void expect_right() const {
    const AttentionResult result = run();
    EXPECT_EQ(result.backend, Backend::kFused);
    EXPECT_EQ(result.output.scalar_type(), dtype);
    bounds.expect_output(result.output, plain, value_sizes);
    EXPECT_EQ(result.weights.defined(), options.need_weights());
    if (result.weights.defined()) bounds.expect_weights(result.weights, plain);
    EXPECT_EQ(result.logsumexp.defined(), options.need_logsumexp());
    if (result.logsumexp.defined()) bounds.expect_logsumexp(result.logsumexp, plain);
  }

  /// NaN and ∞ in a key that no query may see change no row that has a key.
  void expect_blocked_keys_do_not_matter() {
    if (!mask.open.defined() || mask.open.numel() == 0 || plain.masked_score > -1e9) return;
    const at::Tensor unseen = mask.open.sum(at::IntArrayRef{0, 1, 2}).eq(0);  // [S]
    at::Tensor has_key = mask.open;
    if (mask.bias.defined()) has_key = has_key.logical_and(mask.bias.ne(-kInfinity));
    has_key = has_key.any(-1);  // [B, H, L]
    const at::Tensor bad = at::full({}, NAN, key_values.options());
    const at::Tensor inf = at::full({}, kInfinity, key_values.options());
    key = lay(key_values.where(unseen.logical_not().unsqueeze(-1), bad), key_layout);
    value = lay(value_values.where(unseen.logical_not().unsqueeze(-1), inf), value_layout);
    PlainAttention seen = plain;
    seen.output = plain.output.masked_fill(has_key.logical_not().unsqueeze(-1), 0.0);
    const at::Tensor output = run().output.masked_fill(has_key.logical_not().unsqueeze(-1), 0.0);
    bounds.expect_output(output, seen, value_sizes.nan_to_num(0.0));
  }

  std::string text() const {
    std::ostringstream stream;
    const auto part = [&](const char* name, const at::Tensor& x) {
      if (x.defined()) stream << name << " " << x.dtype() << x.sizes() << x.strides() << " ";
    };
    part("query", query), part("key", key), part("value", value);
    const Mask& m = mask.mask;
    if (m.is_causal()) stream << "causal ";
    if (m.is_causal_bottom_right()) stream << "bottom right ";
    part("attend", m.attend_tensor()), part("block", m.block_tensor());
    part("bias", m.bias_tensor());
    stream << "scale " << plain.scale << " clip " << plain.logit_clip.value_or(0) << " softcap "
           << plain.softcap.value_or(0) << " masked_score " << plain.masked_score;
    return stream.str();
  }

  RandomSizes sizes;
  RandomMask mask;
  at::ScalarType dtype;
  Layout key_layout, value_layout;
  at::Tensor query, key, value, key_values, value_values, value_sizes;
  AttentionOptions options;
  bool without_batch = false;
  PlainAttention plain;
  Bounds bounds{at::kFloat, 1.0, 1, 1};
};

TEST(FusedProperty, RandomCallsAreTheFormulaOnEveryTarget) {
  for_dice(6'000, [](Dice& dice) {
    RandomCall call(dice);
    SCOPED_TRACE(call.text());
    on_every_target([&] { call.expect_right(); });
    on_every_target([&] { call.expect_blocked_keys_do_not_matter(); });
  });
}

/// Modules broadcast batches of 1: this one, with identity for its map, is attention between [B|1, ., E].
TEST(FusedProperty, BatchesOfOneBroadcastInEveryOperandAndTheMask) {
  for_dice(1'000, [](Dice& dice) {
    const int64_t B = 1 + dice.below(3), H = 1 + dice.below(3), D = 1 + dice.below(20);
    const int64_t L = 1 + dice.below(40), S = 1 + dice.below(70);
    const auto dtype = dice.pick({at::kFloat, at::kDouble, at::kBFloat16, at::kHalf});
    const auto batch = [&] { return dice.chance(0.5) ? 1 : B; };
    const at::Tensor q = at::randn({batch(), L, H * D}).to(dtype);
    const at::Tensor k = at::randn({batch(), S, H * D}).to(dtype);
    const at::Tensor v = at::randn({batch(), S, H * D}).to(dtype);
    const int64_t all = std::max({q.size(0), k.size(0), v.size(0)});
    const at::Tensor blocked =
        testing::random_openness({dice.chance(0.5) ? 1 : all, dice.chance(0.5) ? 1 : L, S}, dice);

    PreprojectedMultiheadAttention module(ProjectedMultiheadAttentionOptions(H * D).n_heads(H));
    module->to(dtype);
    const at::NoGradGuard no_grad;
    module->project_out->weight.copy_(at::eye(H * D));
    const auto heads = [&](const at::Tensor& x) {  // [B, H, ., D]
      return x.unflatten(-1, {H, D}).transpose(1, 2).expand({all, -1, -1, -1});
    };
    PlainAttention plain{.scale = 1.0 / std::sqrt(static_cast<double>(D)),
                         .open = blocked.logical_not().unsqueeze(1).expand({all, H, L, S}),
                         .fully_masked_is_nan = true};
    plain(heads(q), heads(k), heads(v));
    // A row of NaN in one head is multiplied by zeros for the others.
    const at::Tensor dead = plain.output.isnan().any(1, true).any(-1, true);
    plain.output = plain.output.masked_fill(dead, NAN);
    const at::Tensor sizes = at::matmul(plain.weights, heads(v).to(at::kDouble).abs());
    const BackendGuard guard(Backend::kFused);
    on_every_target([&] {
      const at::Tensor output = module(q, k, v, blocked).unflatten(-1, {H, D}).transpose(1, 2);
      Bounds(dtype, 1.0, D, S).expect_output(output, plain, sizes);
    });
  });
}

}  // namespace
}  // namespace attn
