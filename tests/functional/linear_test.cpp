// The modules' linear maps, seen through a module: with one token and an output map of identity a
// CausalMultiheadAttention gives value projections, since the weight of an only key is exactly 1.

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/stack.h>
#include <attn/functional.h>
#include <attn/modules/causal_multihead_attention.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "support/recorded_operators.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::fill_with_waves;
using testing::has_onednn;
using testing::is_near;
using testing::onednn_products_during;
using testing::waves;

struct LinearTest : ::testing::Test {
  static constexpr int64_t kTokens = 24, kWidth = 128;
  CausalMultiheadAttention module = fill_with_waves(CausalMultiheadAttention(kWidth, 4));
  at::Tensor x = waves({kTokens, 1, kWidth}, 0.7, 0.1, at::kFloat);

  /// Queries and keys of zero: the values alone lead from a token to its output.
  LinearTest() {
    const at::NoGradGuard no_grad;
    module->W_QKV->weight.narrow(0, 0, 2 * kWidth).zero_();
    module->W_QKV->bias.narrow(0, 0, 2 * kWidth).zero_();
    module->W_O->weight.copy_(at::eye(kWidth));
    module->W_O->bias.zero_();
  }

  at::Tensor weight() { return module->W_QKV->weight.narrow(0, 2 * kWidth, kWidth); }
  at::Tensor bias() { return module->W_QKV->bias.narrow(0, 2 * kWidth, kWidth); }
  at::Tensor by_libtorch(const at::Tensor& input) {
    const at::NoGradGuard no_grad;
    return at::linear(input, module->W_QKV->weight, module->W_QKV->bias)
        .narrow(-1, 2 * kWidth, kWidth);
  }

  /// How many of the module's two maps oneDNN computed; W_O, of 0.8 MFLOP, is too small for it.
  auto by_onednn(const at::Tensor& input) {
    return onednn_products_during([&] { module(input); });
  }
};

TEST_F(LinearTest, SaysWhatProjectsAndWhy) {
  const std::string kernel = projection_kernel();
  EXPECT_TRUE(kernel.starts_with("oneDNN (") || kernel.starts_with("LibTorch's linear ("))
      << kernel;
  const BackendGuard guard(Backend::kReference);
  EXPECT_TRUE(projection_kernel().starts_with("LibTorch's linear (")) << projection_kernel();
}

TEST_F(LinearTest, IsTheProductWithinItsRoundings) {
  const at::NoGradGuard no_grad;
  const at::Tensor exact =
      at::linear(x.to(at::kDouble), weight().to(at::kDouble), bias().to(at::kDouble));
  // 128 products of a number below 1 and one below 0.5: sums stay below 64 and each of the 128
  // additions rounds by at most 64 · ε / 2; their errors, of either sign, grow like √128 < 12.
  EXPECT_TRUE(is_near(module(x), exact, 12 * 32 * testing::epsilon(at::kFloat)));
  EXPECT_EQ(by_onednn(x), has_onednn() ? 1 : 0);
}

TEST_F(LinearTest, GoesTheSameWayInInferenceMode) {
  at::Tensor expected;
  {
    const at::NoGradGuard no_grad;
    expected = module(x);
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(at::equal(module(x), expected));
  EXPECT_EQ(by_onednn(x), has_onednn() ? 1 : 0);
}

TEST_F(LinearTest, KeepsLibTorchsBitsOnTheBackendsThatHaveThem) {
  const at::NoGradGuard no_grad;
  for (const Backend backend : {Backend::kReference, Backend::kLibTorch}) {
    const BackendGuard guard(backend);
    EXPECT_TRUE(at::equal(module(x), by_libtorch(x)));
    EXPECT_EQ(by_onednn(x), 0);
  }
}

TEST_F(LinearTest, ReadsAnyStrides) {
  const at::NoGradGuard no_grad;
  const at::Tensor expected = module(x);
  const at::Tensor wide = at::stack({x, -x}, -1).flatten(-2).slice(-1, 0, 2 * kWidth, 2);
  const at::Tensor turned = x.squeeze(1).t().contiguous().t().unsqueeze(1);
  for (const at::Tensor& strided : {wide, turned}) {
    ASSERT_FALSE(strided.is_contiguous());
    EXPECT_TRUE(at::equal(module(strided), expected));
    EXPECT_EQ(by_onednn(strided), has_onednn() ? 1 : 0);
  }
}

TEST_F(LinearTest, GoesToLibTorchWhereItIsSmallEmptyOrAnotherDtype) {
  const at::NoGradGuard no_grad;
  EXPECT_EQ(by_onednn(x.narrow(0, 0, 3)), 0);  // three rows
  EXPECT_EQ(by_onednn(x.narrow(0, 0, 0)), 0);
  EXPECT_EQ(by_onednn(x.narrow(0, 0, 5)), 0);  // 2 · 5 · 384 · 128 = 0.5 MFLOP
  EXPECT_TRUE(at::equal(module(x.narrow(0, 0, 5)), by_libtorch(x.narrow(0, 0, 5))));
  for (const auto dtype : {at::kDouble, at::kBFloat16}) {
    module->to(dtype);
    EXPECT_EQ(by_onednn(x.to(dtype)), 0);
  }
}

TEST_F(LinearTest, GoesToLibTorchUnderAutocastAndWhereTensorsAreMoreThanNumbers) {
  const at::NoGradGuard no_grad;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  EXPECT_EQ(by_onednn(x), 0);
  EXPECT_EQ(module(x).scalar_type(), at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_TRUE(at::equal(module(at::_neg_view(x)), by_libtorch(x.neg())));
}

TEST_F(LinearTest, GoesToLibTorchWhereOneDnnIsSwitchedOff) {
  const at::NoGradGuard no_grad;
  at::globalContext().setUserEnabledMkldnn(false);
  EXPECT_EQ(by_onednn(x), 0);
  EXPECT_TRUE(projection_kernel().starts_with("LibTorch's linear ("));
  at::globalContext().setUserEnabledMkldnn(true);
}

}  // namespace
}  // namespace attn
