// The gradients of the modules' linear maps, seen through modules whose attention only averages, since
// their queries and keys are 0: what a module computes is then a chain of products.

#include <ATen/ops/ones.h>
#include <attn/functional.h>
#include <attn/modules/causal_multihead_attention.h>
#include <attn/modules/xavier_multihead_attention.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "support/recorded_operators.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::error_of;
using testing::fill_with_waves;
using testing::has_onednn;
using testing::onednn_products_during;
using testing::waves;
using Tensors = std::vector<at::Tensor>;

constexpr int64_t kRows = 384, kWidth = 128;

/// A clone in float64, where oneDNN has no part, on the numbers or on their absolute values.
template <class Holder>
Holder in_float64(const Holder& module, bool absolute) {
  Holder copy(std::dynamic_pointer_cast<typename Holder::ContainedType>(module->clone()));
  copy->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (auto& parameter : copy->parameters()) {
    if (absolute) parameter.abs_();
  }
  return copy;
}

at::Tensor leaf_in_float64(const at::Tensor& x, bool absolute) {
  const at::Tensor numbers = x.detach().to(at::kDouble);
  return (absolute ? numbers.abs() : numbers).requires_grad_(x.requires_grad());
}

/// A sum of n products is off by at most n roundings, each of 2^-24 of the sum of their absolute values;
/// a chain of sums by as many as all its sums have terms. `largest` holds the chain's sums of absolute
/// values: the same gradient, in float64, on absolute values.
void expect_within_roundings(const at::Tensor& actual, const at::Tensor& exact,
                             const at::Tensor& largest, int terms) {
  ASSERT_EQ(actual.defined(), exact.defined());
  if (!actual.defined()) return;
  ASSERT_EQ(actual.sizes(), exact.sizes());
  const at::Tensor excess = (actual.to(at::kDouble) - exact).abs() - terms * 0x1p-24 * largest;
  EXPECT_LE(excess.max().item<double>(), 0.0);
}

struct LinearGradientTest : ::testing::Test {
  CausalMultiheadAttention module = fill_with_waves(CausalMultiheadAttention(kWidth, 4));
  at::Tensor x = waves({kRows / 2, 2, kWidth}, 0.7, 0.1, at::kFloat).requires_grad_();
  at::Tensor dy = waves({kRows / 2, 2, kWidth}, 1.3, 0.4, at::kFloat);

  /// Numbers mostly above 0: their sums are about as large as those of the absolute values, and so a
  /// gradient that is off by 1e-4 is seen.
  LinearGradientTest() {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& numbers : leaves()) numbers.add_(0.5);
    dy.add_(0.5);
    module->W_QKV->weight.narrow(0, 0, 2 * kWidth).zero_();
    module->W_QKV->bias.narrow(0, 0, 2 * kWidth).zero_();
  }

  Tensors leaves() const {
    Tensors all = module->parameters();
    all.insert(all.begin(), x);
    return all;
  }

  void forget_gradients() {
    for (at::Tensor& leaf : leaves()) leaf.mutable_grad().reset();
  }

  /// Gradients of x and of the parameters, from `gradient` at the output.
  static Tensors gradients(CausalMultiheadAttention by, const at::Tensor& input,
                           const at::Tensor& gradient) {
    by->forward(input).backward(gradient);
    Tensors found = {input.grad()};
    for (const at::Tensor& parameter : by->parameters()) found.push_back(parameter.grad());
    return found;
  }

  void expect_right_gradients() {
    forget_gradients();
    const Tensors actual = gradients(module, x, dy);
    const Tensors exact =
        gradients(in_float64(module, false), leaf_in_float64(x, false), dy.to(at::kDouble));
    const Tensors largest =
        gradients(in_float64(module, true), leaf_in_float64(x, true), dy.abs().to(at::kDouble));
    for (size_t i = 0; i < actual.size(); ++i) {
      SCOPED_TRACE(i);
      // The longest chain: 128 terms and a bias forward, two values to average, 128 back, and the rows.
      expect_within_roundings(actual[i], exact[i], largest[i], 128 + 1 + 2 + 128 + kRows);
    }
  }

  /// Of a forward and of the backward after it.
  std::pair<int64_t, int64_t> by_onednn() {
    at::Tensor y;
    const int64_t forward = onednn_products_during([&] { y = module(x); });
    return {forward, onednn_products_during([&] { y.backward(dy); })};
  }
};

TEST_F(LinearGradientTest, IsTheProductWithinItsRoundings) {
  expect_right_gradients();
  // W_QKV, of 37.7 MFLOP, forward, for its input and for itself; W_O, of 12.6, is too small.
  EXPECT_EQ(by_onednn(), has_onednn() ? std::pair(1L, 2L) : std::pair(0L, 0L));
}

TEST_F(LinearGradientTest, IsComputedWhereItIsAskedForAlone) {
  const Tensors all = leaves();
  for (unsigned subset = 1; subset < 1U << all.size(); ++subset) {
    SCOPED_TRACE(subset);
    for (size_t i = 0; i < all.size(); ++i) all[i].requires_grad_((subset >> i & 1U) != 0);
    expect_right_gradients();
  }
  for (const at::Tensor& leaf : all) leaf.requires_grad_(false);
  module->W_QKV->bias.requires_grad_();
  EXPECT_EQ(by_onednn(), std::pair(has_onednn() ? 1L : 0L, 0L));  // back it is a sum
}

TEST_F(LinearGradientTest, IsComputedForTheNamedInputsAlone) {
  const at::Tensor& weight = module->W_QKV->weight;
  const at::Tensor y = module(x);
  expect_right_gradients();
  for (const at::Tensor& input : {x, weight}) {
    Tensors found;
    const auto backward = [&] { found = torch::autograd::grad({y}, {input}, {dy}, true); };
    EXPECT_EQ(onednn_products_during(backward), has_onednn() ? 1 : 0);
    EXPECT_TRUE(at::equal(found[0], input.grad()));
  }
}

TEST_F(LinearGradientTest, ReadsAnyStridesOfInputAndGradient) {
  dy = at::ones({}).expand({kRows / 2, 2, kWidth});  // as of sum()
  expect_right_gradients();
  dy = waves({kWidth, 2, kRows / 2}, 1.3, 0.4, at::kFloat).permute({2, 1, 0});
  expect_right_gradients();
  x = waves({2, kRows / 2, 2 * kWidth}, 0.7, 0.1, at::kFloat)
          .slice(-1, 0, 2 * kWidth, 2)
          .transpose(0, 1)
          .requires_grad_();
  expect_right_gradients();
  x = waves({kWidth}, 0.7, 0.1, at::kFloat).expand({kRows / 2, 2, kWidth}).requires_grad_();
  expect_right_gradients();
}

TEST_F(LinearGradientTest, GoesToLibTorchWhereItIsSmall) {
  x = x.detach().narrow(0, 0, 160).requires_grad_();  // 320 rows: 2 · 320 · 128 · 384 = 31.5 MFLOP
  dy = dy.narrow(0, 0, 160);
  EXPECT_EQ(by_onednn(), std::pair(0L, 0L));
  const at::NoGradGuard no_grad;
  EXPECT_EQ(onednn_products_during([&] { module(x); }), has_onednn() ? 2 : 0);
}

TEST_F(LinearGradientTest, KeepsLibTorchsOperatorsOnTheBackendsThatHaveItsBits) {
  for (const Backend backend : {Backend::kReference, Backend::kLibTorch}) {
    const BackendGuard guard(backend);
    EXPECT_EQ(by_onednn(), std::pair(0L, 0L));
  }
}

TEST_F(LinearGradientTest, AddsUpOverUsesOfOneMapAndOverBackwards) {
  const at::Tensor once = gradients(module, x, dy)[1].clone();
  forget_gradients();
  const at::Tensor y = module(x) + module(x);
  y.backward(dy, /*keep_graph=*/true);
  EXPECT_TRUE(at::equal(module->W_QKV->weight.grad(), 2 * once));
  y.backward(dy);
  EXPECT_TRUE(at::equal(module->W_QKV->weight.grad(), 4 * once));
  EXPECT_NE(error_of([&] { y.backward(dy); }).find("a second time"), std::string::npos);
}

TEST_F(LinearGradientTest, RefusesWhatChangedInPlaceSinceTheForward) {
  const auto change = [](const at::Tensor& tensor) {
    const at::NoGradGuard no_grad;
    tensor.mul_(2);
  };
  for (const at::Tensor& used : {x, at::Tensor(module->W_QKV->weight)}) {
    const at::Tensor y = module(x);
    change(used);
    const std::string error = error_of([&] { y.backward(dy); });
    EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
  }
  const at::Tensor y = module(x);
  change(module->W_QKV->bias);  // no gradient needs it
  y.backward(dy);
  for (at::Tensor& parameter : module->parameters()) parameter.requires_grad_(false);
  const at::Tensor of_frozen = module(x);
  change(x);  // nor x, without that of a weight
  of_frozen.backward(dy);
}

TEST_F(LinearGradientTest, RefusesInferenceTensorsAsLibTorchDoes) {
  {
    const c10::InferenceMode inference;
    x = x.detach().clone();
  }
  const std::string error = error_of([&] { module(x); });
  EXPECT_NE(error.find("Inference tensors cannot be saved for backward"), std::string::npos)
      << error;
}

/// The identity that passes no gradient on.
struct Barrier : torch::autograd::Function<Barrier> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static Tensors backward(torch::autograd::AutogradContext*, const Tensors&) {
    return {at::Tensor()};
  }
};

TEST_F(LinearGradientTest, IsNoneWhereNoneArrives) {
  const at::Tensor y = Barrier::apply(module(x));
  y.backward(dy);
  for (const at::Tensor& leaf : leaves()) EXPECT_FALSE(leaf.grad().defined());
}

/// With one key its weight is 1, and the output a map of the values alone. The weights of the result keep
/// the attention on the reference, which differentiates twice.
at::Tensor output_of(XavierMultiheadAttention module, const at::Tensor& values) {
  return std::get<0>(module(values, values, values, at::Tensor(), /*need_attn=*/true));
}

/// The gradient of the values, itself differentiable.
at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& values, const at::Tensor& dy) {
  return torch::autograd::grad({y}, {values}, {dy}, /*retain_graph=*/true,
                               /*create_graph=*/true)[0];
}

/// Σ r ∘ gradient of the values, differentiated by the weights and dy.
Tensors second_derivatives(XavierMultiheadAttention module, const at::Tensor& values,
                           const at::Tensor& dy, const at::Tensor& r) {
  const at::Tensor dx = gradient_of(output_of(module, values), values, dy);
  return torch::autograd::grad({dx}, {module->V->weight, module->Wo->weight, dy}, {r});
}

TEST(LinearSecondDerivativeTest, IsTheProductWithinItsRoundings) {
  constexpr int64_t kWide = 256;
  auto module = fill_with_waves(XavierMultiheadAttention(kWide, kWide, kWide, kWide, 4));
  module->eval();
  const at::Tensor values = waves({kWide, 1, kWide}, 0.7, 0.1, at::kFloat).requires_grad_();
  const at::Tensor dy = waves({kWide, 1, kWide}, 1.3, 0.4, at::kFloat).requires_grad_();
  const at::Tensor r = waves({kWide, 1, kWide}, 0.9, 0.2, at::kFloat);

  at::Tensor y;
  const auto forward = [&] { y = output_of(module, values); };
  EXPECT_EQ(onednn_products_during(forward), has_onednn() ? 4 : 0);  // of 33.6 MFLOP each
  EXPECT_EQ(onednn_products_during([&] { gradient_of(y, values, dy); }), 0);

  const Tensors actual = second_derivatives(module, values, dy, r);
  const auto in_float64_by = [&](bool absolute) {
    return second_derivatives(in_float64(module, absolute), leaf_in_float64(values, absolute),
                              leaf_in_float64(dy, absolute), leaf_in_float64(r, absolute));
  };
  const Tensors exact = in_float64_by(false);
  const Tensors largest = in_float64_by(true);
  for (size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(i);
    // Two products over the width, one over as many rows.
    expect_within_roundings(actual[i], exact[i], largest[i], 3 * kWide);
  }
}

}  // namespace
}  // namespace attn
