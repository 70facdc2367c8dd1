// Random calls: the fused backend's gradients are those of the formula in float64 on every SIMD target.
// ATTN_TEST_SEED and ATTN_TEST_CASES repeat or extend the runs.

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <sstream>

#include "backend/dropout.h"
#include "support/fused.h"
#include "support/gradient_call.h"
#include "support/random_call.h"

namespace attn {
namespace {

using testing::Dice;
using testing::for_dice;
using testing::GradientBounds;
using testing::GradientCall;
using testing::lay;
using testing::on_every_target;
using testing::random_layout;
using testing::RandomMask;
using testing::RandomSizes;
using testing::Wanted;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A call with the gradients that are wanted of it.
struct RandomGradients {
  explicit RandomGradients(Dice& dice) {
    const RandomSizes s(dice);
    const RandomMask mask(s, dice);
    const auto dtype = dice.pick({at::kFloat, at::kFloat, at::kDouble, at::kBFloat16, at::kHalf});
    const auto normal = [&](int64_t heads, int64_t rows, int64_t columns) {
      return lay(at::randn({s.B, heads, rows, columns}).to(dtype), random_layout(dice));
    };
    call.operands = {normal(s.H, s.L, s.D), normal(s.Hk, s.S, s.D), normal(s.Hk, s.S, s.Dv),
                     mask.mask.bias_tensor()};
    const bool from_logsumexp = dice.chance(0.3);
    if (!from_logsumexp || dice.chance(0.7)) call.output_gradient = normal(s.H, s.L, s.Dv);
    if (from_logsumexp) {
      call.logsumexp_gradient =
          at::randn({s.B, s.H, s.L}, dtype == at::kDouble ? at::kDouble : at::kFloat);
    }
    AttentionOptions& options = call.options;
    options.mask(testing::without_bias(mask.mask))
        .masked_score(dice.pick({-kInfinity, -kInfinity, -1e9, -1e20, -2.0, 1.0}));
    if (dice.chance(0.3)) options.scale(dice.pick({0.5, 2.0, -1.0}) / std::sqrt(s.D));
    if (dice.chance(0.3)) {
      const double limit = dice.pick({0.5, 2.0, 10.0});
      dice.chance(0.5) ? options.logit_clip(limit) : options.softcap(limit);
    }
    if (dice.chance(0.3)) options.dropout_p(dice.pick({0.1, 0.5, 0.9}));
    // Python's NaN goes on into queries and bias where a bias of −∞ blocks a row, and is not dropped.
    if (!mask.bias.defined() && options.dropout_p() == 0.0 && dice.chance(0.2)) {
      options.fully_masked(FullyMasked::kNaN);
    }
    do {
      for (bool& one : wanted) one = dice.chance(0.7);
      if (!call.operands[3].defined()) wanted[3] = false;
      // log-sum-exp does not depend on the values.
      if (!call.output_gradient.defined()) wanted[0] = true;
    } while (wanted == Wanted{});
    seed = static_cast<uint64_t>(dice.below(1'000'000));
  }

  void expect_right() const {
    const double p = call.options.dropout_p();
    const auto seeded = [&](auto gradients) {
      torch::manual_seed(seed);
      return gradients();
    };
    const KernelDropoutGuard the_same_dropout;
    const auto truth = seeded([&] { return call.truth(wanted); });
    const GradientBounds bounds(call, p > 0.0 ? 1.0 / (1.0 - p) : 1.0);
    on_every_target([&] { bounds.expect(seeded([&] { return call.fused(wanted); }), truth); });
  }

  std::string text() const {
    std::ostringstream stream;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      const at::Tensor& x = call.operands[i];
      if (!x.defined()) continue;
      stream << testing::kOperandNames[i] << (wanted[i] ? "* " : " ") << x.dtype() << x.sizes()
             << x.strides() << " ";
    }
    const AttentionOptions& o = call.options;
    const Mask& m = o.mask();
    if (m.is_causal()) stream << "causal ";
    if (m.is_causal_bottom_right()) stream << "bottom right ";
    if (m.attend_tensor().defined()) stream << "attend " << m.attend_tensor().sizes() << " ";
    if (m.block_tensor().defined()) stream << "block " << m.block_tensor().sizes() << " ";
    stream << "scale " << o.scale().value_or(0) << " clip " << o.logit_clip().value_or(0)
           << " softcap " << o.softcap().value_or(0) << " masked_score " << o.masked_score()
           << " dropout " << o.dropout_p() << " from output " << call.output_gradient.defined()
           << " from logsumexp " << call.logsumexp_gradient.defined();
    return stream.str();
  }

  GradientCall call;
  Wanted wanted = {};
  uint64_t seed = 0;
};

TEST(FusedGradientsProperty, RandomCallsHaveTheFormulasGradients) {
  for_dice(2'000, [](Dice& dice) {
    const RandomGradients random(dice);
    SCOPED_TRACE(random.text());
    random.expect_right();
  });
}

}  // namespace
}  // namespace attn
