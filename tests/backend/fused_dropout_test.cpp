// Dropout of the fused backend, on every SIMD target: exactly the reference's where that is made to drop
// what the kernel drops.

#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <backend/dropout.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "support/fused.h"
#include "support/gradient_call.h"

namespace attn {
namespace {

using testing::fused;
using testing::GradientBounds;
using testing::GradientCall;
using testing::is_near;
using testing::lower_triangle;
using testing::on_every_target;
using testing::PerOperand;

struct FusedDropout : ::testing::Test {
  static constexpr int64_t B = 2, H = 4, Hk = 2, L = 37, S = 131, D = 9, Dv = 6;

  FusedDropout() { torch::manual_seed(5); }

  static GradientCall make(double p, at::ScalarType dtype = at::kDouble) {
    const auto normal = [&](at::IntArrayRef shape) { return at::randn(shape).to(dtype); };
    GradientCall call{{normal({B, H, L, D}), normal({B, Hk, S, D}), normal({B, Hk, S, Dv}), {}}};
    call.output_gradient = normal({B, H, L, Dv});
    call.options.dropout_p(p);
    return call;
  }

  static AttentionResult run(const GradientCall& call, uint64_t seed,
                             Backend backend = Backend::kFused) {
    torch::manual_seed(seed);
    const at::NoGradGuard no_grad;
    return call.forward(call.operands, backend);
  }
};

TEST_F(FusedDropout, OfOutputAndWeightsIsTheReferencesUnderTheKernelsMask) {
  for (const double p : {0.1, 0.25, 0.5, 0.9}) {
    for (const Mask& mask : {Mask::none(), Mask::causal(), Mask::attend(at::randn({L, S}).gt(0))}) {
      GradientCall call = make(p);
      call.options.mask(mask).need_weights(true).need_logsumexp(true);
      const KernelDropoutGuard the_kernels;
      const AttentionResult expected = run(call, 3, Backend::kReference);
      on_every_target([&] {
        const AttentionResult found = run(call, 3);
        EXPECT_TRUE(at::equal(found.weights.eq(0), expected.weights.eq(0)));
        // Weights of at most 1 and sums of 131 values below 5, multiplied by at most 10.
        EXPECT_TRUE(is_near(found.weights, expected.weights, 1e-14));
        EXPECT_TRUE(is_near(found.output, expected.output, 1e-13));
        EXPECT_TRUE(is_near(found.logsumexp, expected.logsumexp, 1e-14));  // ahead of dropout
      });
    }
  }
}

TEST_F(FusedDropout, OfGradientsIsTheReferencesUnderTheKernelsMask) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double p : {0.1, 0.5}) {
      for (const double score : {-std::numeric_limits<double>::infinity(), -1e9}) {
        GradientCall call = make(p, dtype);
        call.operands[3] = at::randn({1, H, L, S}).to(dtype);
        call.options.mask(Mask::attend(lower_triangle(L, S, -2))).masked_score(score);
        call.logsumexp_gradient =
            at::randn({B, H, L}).to(dtype == at::kDouble ? at::kDouble : at::kFloat);
        const KernelDropoutGuard the_kernels;
        torch::manual_seed(8);
        const PerOperand truth = call.truth();
        const GradientBounds bounds(call, 1.0 / (1.0 - p));
        on_every_target([&] {
          torch::manual_seed(8);
          bounds.expect(call.fused(), truth);
        });
      }
    }
  }
}

TEST_F(FusedDropout, FollowsManualSeedAndDiffersFromCallToCall) {
  const GradientCall call = make(0.3);
  on_every_target([&] {
    const at::Tensor first = run(call, 1).output;
    const at::Tensor next = call.forward(call.operands, Backend::kFused).output;
    EXPECT_FALSE(at::equal(first, next));
    EXPECT_TRUE(at::equal(run(call, 1).output, first));
    EXPECT_TRUE(at::equal(call.forward(call.operands, Backend::kFused).output, next));
    EXPECT_FALSE(at::equal(run(call, 2).output, first));
  });
}

TEST_F(FusedDropout, IsTheSameWithAndWithoutARecordForGradients) {
  GradientCall call = make(0.3, at::kFloat);
  on_every_target([&] {
    const at::Tensor expected = run(call, 4).output;
    torch::manual_seed(4);
    EXPECT_TRUE(at::equal(call.forward(call.leaves(), Backend::kFused).output, expected));
  });
}

TEST_F(FusedDropout, C22_OfNothingLeavesTheGeneratorAlone) {
  const GradientCall none = make(0.0), some = make(0.1);
  torch::manual_seed(1);
  const at::Tensor next = at::rand({4});
  run(none, 1);
  EXPECT_TRUE(at::equal(at::rand({4}), next));
  run(some, 1);
  EXPECT_FALSE(at::equal(at::rand({4}), next));
}

TEST_F(FusedDropout, KeepsTheExpectedShareAndScalesItByTheRoundedProbability) {
  const at::Tensor x = at::zeros({1, 2, 200, 4});
  for (const double p : {0.1, 0.5, 0.75, 0x1p-16, 1.0 / 3}) {
    const double rounded = std::round(p * 65536) / 65536;
    torch::manual_seed(1);
    on_every_target([&] {
      const at::Tensor weights =
          attention(x, x, x, fused().dropout_p(p).need_weights(true)).weights;
      const at::Tensor kept = weights.ne(0);
      // 0.005 each before; two roundings of float32.
      EXPECT_TRUE(is_near(weights.masked_select(kept),
                          at::ones({kept.sum().item<int64_t>()}) * (0.005 / (1 - rounded)),
                          0.005 / (1 - rounded) * 2e-7));
      // 80 000 draws: five standard deviations.
      EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 1 - rounded,
                  5 * std::sqrt(rounded * (1 - rounded) / 80'000));
    });
  }
}

TEST_F(FusedDropout, C24_OfEverythingGivesZerosWithZeroGradients) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const double p : {1.0, 1.0 - 0x1p-18}) {  // rounded to 1
      GradientCall call = make(p, dtype);
      call.operands[3] = at::randn({L, S}).to(dtype);
      on_every_target([&] {
        EXPECT_TRUE(at::equal(run(call, 1).output, at::zeros({B, H, L, Dv}, dtype)));
        for (const at::Tensor& gradient : call.fused()) {
          EXPECT_TRUE(at::equal(gradient, at::zeros_like(gradient)));
        }
      });
      call.options.need_weights(true);
      EXPECT_TRUE(at::equal(run(call, 1).weights, at::zeros({B, H, L, S}, dtype)));
    }
  }
}

TEST_F(FusedDropout, BelowHalfA65536thDropsNothing) {
  const GradientCall none = make(0.0);
  GradientCall call = none;
  call.options.dropout_p(0x1p-18);
  EXPECT_TRUE(at::equal(run(call, 1).output, run(none, 1).output));
}

TEST_F(FusedDropout, LeavesTheReferencesDefaultToPythonsNumbers) {
  GradientCall call = make(0.5);
  call.options.need_weights(true);
  torch::manual_seed(6);
  const at::Tensor python = at::dropout(at::ones({B, H, L, S}, at::kDouble), 0.5, true);
  EXPECT_TRUE(at::equal(run(call, 6, Backend::kReference).weights.ne(0), python.ne(0)));
}

}  // namespace
}  // namespace attn
