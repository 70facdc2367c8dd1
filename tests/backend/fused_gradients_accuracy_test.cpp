// How exact the fused backend's gradients are on every SIMD target: against float64, and against what
// LibTorch's scaled_dot_product_attention makes of the same input.

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "support/accuracy_case.h"
#include "support/fused.h"
#include "support/gradient_call.h"

namespace attn {
namespace {

using testing::AccuracyCase;
using testing::GradientCall;
using testing::on_every_target;
using testing::PerOperand;
using testing::relative_error;

std::vector<AccuracyCase> cases() {
  using Case = AccuracyCase;
  return {
      {"T128", 2, 2, 2, 128, 128, 64, 64},
      {"T512", 1, 2, 2, 512, 512, 64, 64},
      {"T1500", 1, 1, 1, 1500, 1500, 64, 64},
      {"D32", 1, 2, 2, 400, 400, 32, 32},
      {"D128", 1, 1, 1, 300, 300, 128, 128},
      {"tails", 2, 3, 3, 129, 193, 80, 80},
      {"another value size", 1, 2, 2, 200, 300, 64, 48},
      {"grouped heads", 1, 8, 2, 190, 190, 64, 64},
      {"one query", 8, 8, 4, 1, 700, 64, 64},
      {"causal T512", 1, 2, 2, 512, 512, 64, 64, Case::kCausal},
      {"bool [L, S]", 1, 2, 2, 300, 300, 64, 64, Case::kBool},
      {"key padding", 3, 2, 2, 200, 200, 64, 64, Case::kPadding},
      {"learned bias [L, S]", 1, 2, 2, 300, 300, 64, 64, Case::kBias},
  };
}

/// The call of a case.
GradientCall make_call(const AccuracyCase& c, at::ScalarType dtype) {
  const auto normal = [&](int64_t heads, int64_t rows, int64_t columns) {
    return at::randn({c.B, heads, rows, columns}).to(dtype);
  };
  GradientCall call{{normal(c.H, c.L, c.D), normal(c.Hk, c.S, c.D), normal(c.Hk, c.S, c.Dv), {}}};
  call.output_gradient = normal(c.H, c.L, c.Dv);
  const at::Tensor mask = c.random_mask(dtype);
  if (c.masking == AccuracyCase::kCausal) {
    call.options.mask(Mask::causal());
  } else if (c.masking == AccuracyCase::kBias) {
    call.operands[3] = mask;
  } else if (mask.defined()) {
    call.options.mask(Mask::attend(mask));
  }
  return call;
}

PerOperand by_sdpa(const GradientCall& call) {
  const PerOperand leaves = call.leaves();
  const Mask& mask = call.options.mask();
  const at::Tensor output =
      testing::by_sdpa(leaves[0], leaves[1], leaves[2],
                       leaves[3].defined() ? leaves[3] : mask.attend_tensor(), mask.is_causal());
  output.backward(call.output_gradient);
  PerOperand gradients;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].defined()) gradients[i] = leaves[i].grad();
  }
  return gradients;
}

struct FusedGradientsAccuracy : ::testing::TestWithParam<AccuracyCase> {
  /// Every gradient's relative error stays within `bound`, and within twice SDPA's; in float64 both are
  /// some ulp, where the order of the sums decides.
  static void expect_within(at::ScalarType dtype, double bound) {
    torch::manual_seed(7);
    const GradientCall call = make_call(GetParam(), dtype);
    const PerOperand truth = call.truth();
    const PerOperand sdpa = by_sdpa(call);
    on_every_target([&] {
      const PerOperand found = call.fused();
      for (size_t i = 0; i < found.size(); ++i) {
        if (!found[i].defined()) continue;
        const double error = relative_error(found[i], truth[i]);
        EXPECT_LE(error, bound) << testing::kOperandNames[i];
        if (dtype == at::kDouble) continue;
        EXPECT_LE(error, 2.0 * relative_error(sdpa[i], truth[i])) << testing::kOperandNames[i];
      }
    });
  }
};

// A weight, made again from its logit, is off by 2 to 4e-7 in float32, as in the forward pass; its
// gradient by as much again, since it is a difference of two products; sums add little at random.
// LibTorch's own is 4 to 5e-7. Thrice that is 1.5e-6.
TEST_P(FusedGradientsAccuracy, OfFloat32IsAMillionth) { expect_within(at::kFloat, 1.5e-6); }

// The same with 2^-53 for 2^-24, and some head room.
TEST_P(FusedGradientsAccuracy, OfFloat64IsAHundredUlp) { expect_within(at::kDouble, 2e-14); }

// Rounding to 8 digits costs 1.7e-3 on average: the output that the row's sum is made of, the weights'
// gradients before they are multiplied, and the result are rounded, √3 times that is 3e-3, and some.
TEST_P(FusedGradientsAccuracy, OfBFloat16IsItsRounding) { expect_within(at::kBFloat16, 5e-3); }

// Of 11 digits, output and result are rounded, by 2.1e-4 on average each, and at most 2^-11.
TEST_P(FusedGradientsAccuracy, OfFloat16IsItsRounding) { expect_within(at::kHalf, 0x1p-10); }

INSTANTIATE_TEST_SUITE_P(Shapes, FusedGradientsAccuracy, ::testing::ValuesIn(cases()),
                         testing::name_of);

}  // namespace
}  // namespace attn
