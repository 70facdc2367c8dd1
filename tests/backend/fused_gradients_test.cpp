// The fused backend's gradients, on every SIMD target, against the documents' formula in float64.

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "support/fused.h"
#include "support/gradient_call.h"
#include "support/random_call.h"

namespace attn {
namespace {

using testing::all_layouts;
using testing::expect_right_gradients;
using testing::GradientBounds;
using testing::GradientCall;
using testing::kAll;
using testing::lay;
using testing::Layout;
using testing::lower_triangle;
using testing::on_every_target;
using testing::PerOperand;
using testing::Wanted;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct FusedGradients : ::testing::Test {
  static constexpr int64_t B = 2, H = 4, Hk = 2, L = 37, S = 70, D = 9, Dv = 6;

  FusedGradients() { torch::manual_seed(11); }

  static GradientCall make(at::ScalarType dtype = at::kDouble) {
    const auto normal = [&](at::IntArrayRef shape) { return at::randn(shape).to(dtype); };
    return {{normal({B, H, L, D}), normal({B, Hk, S, D}), normal({B, Hk, S, Dv}), {}},
            {},
            normal({B, H, L, Dv})};
  }

  static at::Tensor logsumexp_gradient(const GradientCall& call) {
    return at::randn({B, H, L}).to(call.operands[0].scalar_type() == at::kDouble ? at::kDouble
                                                                                 : at::kFloat);
  }

  static std::vector<std::pair<std::string, Mask>> masks() {
    const at::Tensor late = lower_triangle(L, S, -2);  // queries 0 and 1 see nothing
    const at::Tensor padding = at::randn({B, 1, 1, S}).gt(-0.5);
    const at::Tensor heads = at::randn({1, H, L, S}).gt(0);
    return {{"none", Mask::none()},
            {"causal", Mask::causal()},
            {"bottom right", Mask::causal_bottom_right()},
            {"late", Mask::attend(late)},
            {"padding", Mask::attend(padding)},
            {"heads", Mask::block(heads)},
            {"queries", Mask::block(heads.narrow(3, 0, 1))},
            {"everything", Mask::causal() & Mask::attend(padding) & Mask::block(heads)}};
  }
};

TEST_F(FusedGradients, AreRightUnderEveryMaskAndOption) {
  const auto with = [](AttentionOptions options) { return options; };
  const AttentionOptions plain;
  const std::vector<std::pair<std::string, AttentionOptions>> kinds = {
      {"plain", plain},
      {"clip", with(plain).logit_clip(2.0)},
      {"softcap", with(plain).softcap(1.5)},
      {"scale", with(plain).scale(-0.8)},
      {"masked_score -2", with(plain).masked_score(-2.0)},
      {"masked_score -1e9", with(plain).masked_score(-1e9)},
      {"masked_score -1e20, clip", with(plain).masked_score(-1e20).logit_clip(2.0)},
  };
  for (const auto& [mask_name, mask] : masks()) {
    for (const auto& [option_name, options] : kinds) {
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(mask_name + ", " + option_name + (biased ? ", biased" : ""));
        GradientCall call = make();
        call.options = AttentionOptions(options).mask(mask);
        if (biased) call.operands[3] = at::randn({1, H, L, S}, at::kDouble);
        call.logsumexp_gradient = logsumexp_gradient(call);
        on_every_target([&] { expect_right_gradients(call); });
      }
    }
  }
}

TEST_F(FusedGradients, AreRightInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& [name, mask] : masks()) {
      for (const double score : {-kInfinity, -1e9}) {
        SCOPED_TRACE(name + ", " + c10::toString(dtype));
        GradientCall call = make(dtype);
        call.options.mask(mask).masked_score(score);
        call.operands[3] = at::randn({L, S}).to(dtype);
        call.logsumexp_gradient = logsumexp_gradient(call);
        on_every_target([&] { expect_right_gradients(call); });
      }
    }
  }
}

TEST_F(FusedGradients, OfARowWithoutKeysAreZeroAndFinite) {
  GradientCall call = make(at::kFloat);
  call.options.mask(Mask::attend(lower_triangle(L, S, -2)));
  on_every_target([&] {
    const PerOperand found = call.fused();
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(found[i].isfinite().all().item<bool>());
    EXPECT_EQ(found[0].narrow(2, 0, 2).abs().max().item<double>(), 0.0);
    // A row of one key has a gradient of zero as well: its weight is 1.
    EXPECT_GT(found[0].narrow(2, 3, L - 3).abs().amax(-1).min().item<double>(), 0.0);
  });
}

TEST_F(FusedGradients, OfARowOfNaNPoisonTheValuesAsInPython) {
  GradientCall call = make();
  call.options.mask(Mask::attend(lower_triangle(L, S, -2))).fully_masked(FullyMasked::kNaN);
  on_every_target([&] {
    const PerOperand found = call.fused();
    EXPECT_TRUE(found[2].isnan().all().item<bool>());
    EXPECT_TRUE(found[0].isfinite().all().item<bool>());
    EXPECT_TRUE(found[1].isfinite().all().item<bool>());
    expect_right_gradients(call);
  });
}

TEST_F(FusedGradients, AreNotReachedByNaNInABlockedKey) {
  const at::Tensor open = at::randn({B, 1, 1, S}).gt(-0.5);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    GradientCall call = make(dtype);
    call.options.mask(Mask::attend(open));
    GradientCall poisoned = call;
    const at::Tensor blocked = open.logical_not().transpose(2, 3);  // [B, 1, S, 1]
    for (const size_t i : {1, 2}) {
      call.operands[i] = call.operands[i].masked_fill(blocked, 0.0);
      poisoned.operands[i] = call.operands[i].masked_fill(blocked, i == 1 ? NAN : kInfinity);
    }
    on_every_target([&] {
      const PerOperand expected = call.fused(), found = poisoned.fused();
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(found[i].isfinite().all().item<bool>()) << i << " " << dtype;
        EXPECT_LT(testing::relative_error(found[i], expected[i].to(at::kDouble)), 1e-2);
      }
    });
  }
}

TEST_F(FusedGradients, OfABiasHaveItsShapeAndDtype) {
  for (int sizes = 0; sizes < 16; ++sizes) {
    const auto size = [&](int bit, int64_t n) { return (sizes >> bit & 1) != 0 ? n : 1; };
    std::vector<std::vector<int64_t>> shapes = {{size(3, B), size(2, H), size(1, L), size(0, S)}};
    if (sizes < 4) shapes.push_back({size(1, L), size(0, S)});
    for (const auto& shape : shapes) {
      for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        GradientCall call = make(at::kFloat);
        call.operands[3] = at::randn(shape).to(dtype);
        call.options.mask(Mask::causal());
        on_every_target([&] {
          const PerOperand found = call.fused();
          EXPECT_EQ(found[3].sizes(), at::IntArrayRef(shape));
          EXPECT_EQ(found[3].scalar_type(), dtype);
          GradientBounds(call).expect(found, call.truth());
        });
      }
    }
  }
}

TEST_F(FusedGradients, OfAnExpandedBiasAreThoseOfEveryPlace) {
  GradientCall call = make();
  call.operands[3] = at::randn({L, 1}, at::kDouble).expand({B, 1, L, S});
  on_every_target([&] {
    EXPECT_EQ(call.fused()[3].sizes(), at::IntArrayRef({B, 1, L, S}));
    expect_right_gradients(call);
  });
}

TEST_F(FusedGradients, OfABiasOfMinusInfinityAreZeroThere) {
  GradientCall call = make();
  const at::Tensor open = at::randn({L, S}).gt(0);
  call.operands[3] = at::zeros({L, S}, at::kDouble).masked_fill(open.logical_not(), -kInfinity);
  call.operands[3].select(0, 3).fill_(-kInfinity);  // a row without keys
  on_every_target([&] {
    EXPECT_EQ(call.fused()[3].masked_select(open.logical_not()).abs().max().item<double>(), 0.0);
    expect_right_gradients(call);
  });
}

TEST_F(FusedGradients, AreTheSameBitsWhicheverOthersAreAskedForTheBiasAside) {
  GradientCall call = make(at::kFloat);
  call.operands[3] = at::randn({1, H, L, S});
  call.logsumexp_gradient = logsumexp_gradient(call);
  on_every_target([&] {
    // The bias's gradient is summed over batches, which makes other tasks.
    const PerOperand with_bias = call.fused(), without_bias = call.fused({true, true, true, false});
    for (int which = 1; which < 16; ++which) {
      Wanted wanted;
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = (which >> i & 1) != 0;
      const PerOperand& all = wanted[3] ? with_bias : without_bias;
      const PerOperand found = call.fused(wanted);
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].defined(), wanted[i]);
        EXPECT_TRUE(!wanted[i] || at::equal(found[i], all[i])) << i << " of " << which;
      }
    }
  });
}

TEST_F(FusedGradients, StartFromOutputLogsumexpOrBoth) {
  GradientCall call = make();
  call.operands[3] = at::randn({L, S}, at::kDouble);
  on_every_target([&] { expect_right_gradients(call); });
  call.logsumexp_gradient = logsumexp_gradient(call);
  on_every_target([&] { expect_right_gradients(call); });
  call.output_gradient = at::Tensor();
  on_every_target([&] {
    expect_right_gradients(call);
    EXPECT_EQ(call.fused()[2].abs().max().item<double>(), 0.0);
  });
}

TEST_F(FusedGradients, ReadTheirStartWhateverItsStrides) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    GradientCall call = make(dtype);
    const at::Tensor start = call.output_gradient;
    std::vector<at::Tensor> starts = {at::ones({1}, start.options()).expand(start.sizes()),
                                      start.narrow(3, 0, 1).expand(start.sizes()),
                                      at::_neg_view(start)};
    for (const Layout layout : all_layouts()) starts.push_back(lay(start, layout));
    for (const at::Tensor& laid : starts) {
      call.output_gradient = laid;
      on_every_target([&] { expect_right_gradients(call); });
    }
    call.output_gradient = start;
    call.logsumexp_gradient = at::randn({L, H, B}).permute({2, 1, 0});
    on_every_target([&] { expect_right_gradients(call); });
  }
}

TEST_F(FusedGradients, LieInMemoryAsWhatTheyBelongTo) {
  for (const Layout layout : all_layouts()) {
    GradientCall call = make(at::kFloat);
    for (size_t i = 0; i < 3; ++i) call.operands[i] = lay(call.operands[i], layout);
    on_every_target([&] {
      const PerOperand found = call.fused();
      GradientBounds(call).expect(found, call.truth());
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(found[i].stride(3), 1);
        EXPECT_TRUE(found[i].is_non_overlapping_and_dense());
        if (layout == Layout::kHeadsLast || layout == Layout::kFused) {
          EXPECT_TRUE(found[i].transpose(1, 2).is_contiguous()) << found[i].strides();
        }
      }
    });
  }
}

TEST_F(FusedGradients, WithoutQueriesKeysOrBatchesAreZeros) {
  const GradientCall whole = make();
  const auto cut = [&](int64_t b, int64_t l, int64_t s) {
    const auto some = [&](const at::Tensor& x, int64_t t) {
      return x.narrow(0, 0, b).narrow(2, 0, t);
    };
    const auto& [q, k, v, none] = whole.operands;
    GradientCall call{{some(q, l), some(k, s), some(v, s), at::zeros({1, H, l, s}, at::kDouble)}};
    call.output_gradient = some(whole.output_gradient, l);
    call.logsumexp_gradient = at::randn({b, H, l}, at::kDouble);
    return call;
  };
  for (const GradientCall& call : {cut(0, L, S), cut(B, 0, S), cut(B, L, 0)}) {
    on_every_target([&] {
      const PerOperand found = call.fused();
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(at::equal(found[i], at::zeros_like(call.operands[i])));
      }
    });
  }
}

TEST_F(FusedGradients, WithoutValuesComeFromLogsumexpAlone) {
  GradientCall call = make();
  call.operands[2] = call.operands[2].narrow(3, 0, 0);
  call.output_gradient = call.output_gradient.narrow(3, 0, 0);
  call.logsumexp_gradient = logsumexp_gradient(call);
  on_every_target([&] { expect_right_gradients(call); });
}

TEST_F(FusedGradients, C25_OnlyTheBiasMayRequireOne) {
  using testing::waves;
  GradientCall call{{waves({1, 2, 3, 4}, 0.7, 0.1), waves({1, 2, 3, 4}, 0.9, 0.4),
                     waves({1, 2, 3, 4}, 1.3, 0.8), waves({1, 1, 3, 3}, 0.2, 0.5)}};
  call.output_gradient = waves({1, 2, 3, 4}, 0.3, 0.6);
  on_every_target([&] {
    const at::Tensor found = call.fused({false, false, false, true})[3];
    const at::Tensor row =
        at::tensor({-0.277618751646, 0.160478640852, 0.117140110793}, at::kDouble);
    EXPECT_TRUE(testing::is_near(found[0][0][0], row, 1e-11));  // printed with 12 digits
    EXPECT_TRUE(testing::is_near(found.sum(-1), at::zeros({1, 1, 3}), 1e-15));
  });
}

}  // namespace
}  // namespace attn
