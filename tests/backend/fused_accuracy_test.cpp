// How exact the fused backend is, on every SIMD target: against plain loops in float64, and against what
// LibTorch's scaled_dot_product_attention makes of the same input.

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "support/accuracy_case.h"
#include "support/fused.h"
#include "support/plain_attention.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::AccuracyCase;
using testing::fused;
using testing::lower_triangle;
using testing::on_every_target;
using testing::PlainAttention;

std::vector<AccuracyCase> cases() {
  using Case = AccuracyCase;
  return {
      {"T128", 2, 2, 2, 128, 128, 64, 64},
      {"T512", 1, 2, 2, 512, 512, 64, 64},
      {"T2048", 1, 1, 1, 2048, 2048, 64, 64},
      {"D32", 1, 4, 4, 512, 512, 32, 32},
      {"D128", 1, 1, 1, 512, 512, 128, 128},
      {"tails", 2, 3, 3, 257, 385, 80, 80},
      {"another value size", 1, 2, 2, 200, 300, 64, 48},
      {"grouped heads", 1, 8, 2, 190, 190, 64, 64},
      {"decoding", 2, 8, 2, 1, 2048, 64, 64},
      {"two queries", 2, 8, 8, 2, 1000, 128, 128},
      {"few queries", 4, 8, 8, 7, 700, 64, 64},
      {"causal T512", 1, 2, 2, 512, 512, 64, 64, Case::kCausal},
      {"causal T2048", 1, 1, 1, 2048, 2048, 64, 64, Case::kCausal},
      {"bool [L, S]", 1, 2, 2, 512, 512, 64, 64, Case::kBool},
      {"key padding", 3, 2, 2, 300, 300, 64, 64, Case::kPadding},
      {"additive [L, S]", 1, 2, 2, 512, 512, 64, 64, Case::kBias},
  };
}

/// Inputs of a case in a dtype, and attention by each.
class Accuracy {
 public:
  Accuracy(const AccuracyCase& c, at::ScalarType dtype)
      : query_(at::randn({c.B, c.H, c.L, c.D}).to(dtype)),
        key_(at::randn({c.B, c.Hk, c.S, c.D}).to(dtype)),
        value_(at::randn({c.B, c.Hk, c.S, c.Dv}).to(dtype)),
        is_causal_(c.masking == AccuracyCase::kCausal) {
    const auto whole = [&](const at::Tensor& x) { return x.expand({c.B, c.H, c.L, c.S}); };
    mask_tensor_ = c.random_mask(dtype);
    plain_.scale = 1.0 / std::sqrt(static_cast<double>(c.D));
    if (is_causal_) {
      mask_ = Mask::causal();
      plain_.open = whole(lower_triangle(c.L, c.S));
    } else if (c.masking == AccuracyCase::kBias) {
      mask_ = Mask::bias(mask_tensor_);
      plain_.bias = whole(mask_tensor_);
    } else if (mask_tensor_.defined()) {
      mask_ = Mask::attend(mask_tensor_);
      plain_.open = whole(mask_tensor_);
    }
    plain_(query_, key_, value_);
  }

  at::Tensor by_fused() const { return attention(query_, key_, value_, fused(mask_)).output; }
  at::Tensor by_sdpa() const {
    return testing::by_sdpa(query_, key_, value_, mask_tensor_, is_causal_);
  }
  /// ‖output − plain‖ / ‖plain‖ (Frobenius).
  double relative_error(const at::Tensor& output) const {
    return testing::relative_error(output, plain_.output);
  }
  double largest_error(const at::Tensor& output) const {
    return (output.to(at::kDouble) - plain_.output).abs().max().item<double>();
  }

 private:
  at::Tensor query_, key_, value_, mask_tensor_;
  bool is_causal_;
  Mask mask_ = Mask::none();
  PlainAttention plain_;
};

struct FusedAccuracy : ::testing::TestWithParam<AccuracyCase> {
  /// The relative error stays within `bound`, and within twice SDPA's.
  static void expect_within(at::ScalarType dtype, double bound, double largest) {
    torch::manual_seed(7);
    const Accuracy accuracy(GetParam(), dtype);
    const double sdpa = accuracy.relative_error(accuracy.by_sdpa());
    on_every_target([&] {
      const at::Tensor output = accuracy.by_fused();
      EXPECT_EQ(output.scalar_type(), dtype);
      EXPECT_LE(accuracy.relative_error(output), bound);
      EXPECT_LE(accuracy.relative_error(output), 2.0 * sdpa);
      EXPECT_LE(accuracy.largest_error(output), largest);
    });
  }
};

// A logit of size 1 is a sum of D products in float32 and off by some 2^-24 (6e-8), its exponential by
// another 1.7e-7; weights, their sum and the output gather 2 to 4e-7 at random. Thrice that is 1e-6; the
// largest of 100 000 outputs, each of size 1 at most, is off by some ten times the average, 3e-6.
TEST_P(FusedAccuracy, OfFloat32IsAMillionth) { expect_within(at::kFloat, 1e-6, 3e-6); }

// The same with 2^-53 for 2^-24, and some head room.
TEST_P(FusedAccuracy, OfFloat64IsSixtyUlp) { expect_within(at::kDouble, 1e-14, 3e-14); }

// Rounding to 8 digits costs at most 2^-8 = 3.9e-3 and 1.7e-3 on average; the output is rounded, and so
// may the weights be: together 2.4e-3 on average. Outputs of at most 5 are off by 2^-8 of it twice.
TEST_P(FusedAccuracy, OfBFloat16IsItsRounding) { expect_within(at::kBFloat16, 4e-3, 5 * 0x1p-7); }

// Of 11 digits, the output alone is rounded, by at most 2^-11 = 4.9e-4.
TEST_P(FusedAccuracy, OfFloat16IsItsRounding) { expect_within(at::kHalf, 5e-4, 5 * 0x1p-10); }

INSTANTIATE_TEST_SUITE_P(Shapes, FusedAccuracy, ::testing::ValuesIn(cases()), testing::name_of);

}  // namespace
}  // namespace attn
