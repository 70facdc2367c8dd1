// The fused backend as a citizen of autograd: graphs, modes, saved tensors and derivatives of derivatives.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <backend/dropout.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/utils.h>

#include <optional>

#include "support/autocast.h"
#include "support/fused.h"
#include "support/gradient_call.h"

namespace attn {
namespace {

using testing::Autocast;
using testing::error_of;
using testing::fused;
using testing::GradientBounds;
using testing::GradientCall;
using testing::is_near;
using testing::on_every_target;
using testing::PerOperand;
using torch::autograd::grad;
using torch::autograd::variable_list;

struct FusedAutograd : ::testing::Test {
  static constexpr int64_t B = 2, H = 4, Hk = 2, L = 7, S = 11, D = 5, Dv = 6;

  FusedAutograd() { torch::manual_seed(9); }

  static GradientCall make(at::ScalarType dtype = at::kDouble) {
    const auto normal = [&](at::IntArrayRef shape) { return at::randn(shape).to(dtype); };
    GradientCall call{{normal({B, H, L, D}), normal({B, Hk, S, D}), normal({B, Hk, S, Dv}), {}}};
    call.output_gradient = normal({B, H, L, Dv});
    return call;
  }

  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

TEST_F(FusedAutograd, IsWhatAutoTakesForTraining) {
  const PerOperand leaves = make(at::kFloat).leaves();
  EXPECT_EQ(why_not(Backend::kFused, leaves[0], leaves[1], leaves[2]), std::nullopt);
  for (const double p : {0.0, 0.1}) {
    const auto result = attention(leaves[0], leaves[1], leaves[2], AttentionOptions().dropout_p(p));
    EXPECT_EQ(result.backend, Backend::kFused);
    EXPECT_TRUE(result.output.requires_grad());
  }
}

TEST_F(FusedAutograd, RecordsNothingWhereNothingRequiresAGradient) {
  const PerOperand x = make().operands;
  EXPECT_FALSE(attention(x[0], x[1], x[2], fused()).output.requires_grad());
  const PerOperand leaves = make().leaves();
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(attention(leaves[0], leaves[1], leaves[2], fused()).output.requires_grad());
}

TEST_F(FusedAutograd, GivesTheSameBitsWithAndWithoutARecord) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const GradientCall call = make(dtype);
    on_every_target([&] {
      EXPECT_TRUE(at::equal(call.forward(call.leaves(), Backend::kFused).output,
                            call.forward(call.operands, Backend::kFused).output));
    });
  }
}

TEST_F(FusedAutograd, TakesOneTensorAsQueryKeyAndValue) {
  const at::Tensor x = at::randn({B, H, L, D}, at::kDouble);
  const auto gradient = [&](Backend backend) {
    const at::Tensor leaf = x.detach().requires_grad_();
    const at::Tensor output =
        attention(leaf, leaf, leaf, fused(Mask::causal()).backend(backend)).output;
    return grad({output.square().sum()}, {leaf})[0];
  };
  // Sums of some 30 terms of order 10.
  EXPECT_TRUE(is_near(gradient(Backend::kFused), gradient(Backend::kReference), 1e-12));
}

TEST_F(FusedAutograd, TakesThreeDimensionsAsNoBatch) {
  const GradientCall call = make();
  const auto first = [](const at::Tensor& x) { return x[0].detach().requires_grad_(); };
  const variable_list leaves = {first(call.operands[0]), first(call.operands[1]),
                                first(call.operands[2])};
  const auto gradients = [&](Backend backend) {
    const auto result =
        attention(leaves[0], leaves[1], leaves[2], fused().need_logsumexp(true).backend(backend));
    return grad({result.output, result.logsumexp}, leaves,
                {call.output_gradient[0], result.logsumexp.detach()});
  };
  const auto found = gradients(Backend::kFused), expected = gradients(Backend::kReference);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(is_near(found[i], expected[i], 1e-13));
}

TEST_F(FusedAutograd, GivesLogsumexpAGradientOnlyWhereItIsReturned) {
  const PerOperand leaves = make().leaves();
  const auto result = attention(leaves[0], leaves[1], leaves[2], fused().need_logsumexp(true));
  EXPECT_TRUE(result.logsumexp.requires_grad());
  EXPECT_FALSE(attention(leaves[0], leaves[1], leaves[2], fused()).logsumexp.defined());
}

TEST_F(FusedAutograd, ItsOutputMayBeChangedInPlaceUntilItIsNeeded) {
  const GradientCall call = make();
  const PerOperand leaves = call.leaves();
  at::Tensor output = call.forward(leaves, Backend::kFused).output;
  output.mul_(2);
  const std::string error = error_of([&] { output.sum().backward(); });
  EXPECT_TRUE(contains(error, "modified by an inplace operation")) << error;
  const at::NoGradGuard no_grad;
  at::Tensor free = call.forward(leaves, Backend::kFused).output;
  EXPECT_EQ(error_of([&] { free.mul_(2); }), "");
}

TEST_F(FusedAutograd, C33_WhatItSavedMayNotBeChangedInPlace) {
  for (size_t which = 0; which < 5; ++which) {
    GradientCall call = make();
    call.operands[3] = at::randn({L, S}, at::kDouble);
    at::Tensor open = at::randn({L, S}).gt(0);
    call.options.mask(Mask::attend(open));
    const PerOperand leaves = call.leaves();
    const at::Tensor output = call.forward(leaves, Backend::kFused).output;
    {
      const at::NoGradGuard no_grad;
      which < 4 ? at::Tensor(leaves[which]).add_(1) : open.logical_not_();
    }
    const std::string error = error_of([&] { output.sum().backward(); });
    EXPECT_TRUE(contains(error, "modified by an inplace operation")) << which << error;
  }
}

TEST_F(FusedAutograd, C33_InferenceTensorsCannotBeSaved) {
  const GradientCall call = make();
  PerOperand leaves = call.leaves();
  {
    const c10::InferenceMode inference;
    leaves[1] = call.operands[1] + 0;
  }
  const std::string error = error_of([&] { call.forward(leaves, Backend::kFused); });
  EXPECT_TRUE(contains(error, "Inference tensors cannot be saved for backward")) << error;
  leaves[1] = leaves[1].clone();
  EXPECT_EQ(error_of([&] { call.forward(leaves, Backend::kFused).output.sum().backward(); }), "");
}

TEST_F(FusedAutograd, ASecondBackwardNeedsARetainedGraph) {
  const GradientCall call = make();
  const PerOperand leaves = call.leaves();
  const at::Tensor sum = call.forward(leaves, Backend::kFused).output.sum();
  sum.backward({}, /*retain_graph=*/true);
  const at::Tensor once = leaves[0].grad().clone();
  sum.backward();
  EXPECT_TRUE(at::equal(leaves[0].grad(), once * 2));
  EXPECT_TRUE(contains(error_of([&] { sum.backward(); }), "backward through the graph a second"));
}

TEST_F(FusedAutograd, AutocastGivesEachLeafAGradientOfItsOwnDtype) {
  GradientCall call = make(at::kFloat);
  call.operands[3] = at::randn({L, S});
  call.output_gradient = call.output_gradient.to(at::kBFloat16);
  GradientCall half = call;
  for (size_t i = 0; i < 3; ++i) half.operands[i] = half.operands[i].to(at::kBFloat16);
  on_every_target([&] {
    const PerOperand expected = half.fused();
    PerOperand found;
    {
      const Autocast autocast(at::kBFloat16);
      found = call.fused();  // the backward pass as well
    }
    const PerOperand leaves = call.leaves();
    at::Tensor output;
    {
      const Autocast autocast(at::kBFloat16);
      output = call.forward(leaves, Backend::kFused).output;
    }
    output.backward(call.output_gradient);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(found[i].scalar_type(), at::kFloat);
      EXPECT_TRUE(at::equal(found[i], expected[i].to(at::kFloat)));
      EXPECT_TRUE(at::equal(leaves[i].grad(), found[i]));
    }
  });
}

/// What checkpointing does: the forward pass runs without a record, and again in the backward pass from
/// the same state of the random numbers.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor attend(const variable_list& x) {
    return attention(x[0], x[1], x[2], fused(Mask::causal()).dropout_p(0.3)).output;
  }
  static variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor& query,
                               const at::Tensor& key, const at::Tensor& value) {
    context->save_for_backward({query, key, value});
    context->saved_data["state"] = at::detail::getDefaultCPUGenerator().get_state();
    return {attend({query, key, value})};
  }
  static variable_list backward(torch::autograd::AutogradContext* context,
                                const variable_list& gradients) {
    variable_list leaves;
    for (const at::Tensor& x : context->get_saved_variables()) {
      leaves.push_back(x.detach().requires_grad_());
    }
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    generator.set_state(context->saved_data["state"].toTensor());
    const at::AutoGradMode record(true);
    return grad({attend(leaves)}, leaves, gradients);
  }
};

TEST_F(FusedAutograd, CheckpointsRecomputeTheSameDropout) {
  const GradientCall call = make();
  on_every_target([&] {
    torch::manual_seed(2);
    const PerOperand plain = call.leaves();
    Checkpoint::attend({plain[0], plain[1], plain[2]}).backward(call.output_gradient);
    torch::manual_seed(2);
    const PerOperand saved = call.leaves();
    Checkpoint::apply(saved[0], saved[1], saved[2])[0].backward(call.output_gradient);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(saved[i].grad(), plain[i].grad()));
  });
}

/// The gradients, by all operands and by the starting gradients, of a sum of squares of the gradients.
variable_list second_gradients(const GradientCall& call, Backend backend, uint64_t seed) {
  torch::manual_seed(seed);
  const PerOperand leaves = call.leaves();
  const AttentionResult result = call.forward(leaves, backend);
  const at::Tensor start = call.output_gradient.detach().requires_grad_();
  const at::Tensor rows = call.logsumexp_gradient.detach().requires_grad_();
  variable_list inputs(leaves.begin(), leaves.end());
  const variable_list first = grad({result.output, result.logsumexp}, inputs, {start, rows},
                                   std::nullopt, /*create_graph=*/true);
  at::Tensor penalty = at::zeros({}, at::kDouble);
  for (const at::Tensor& gradient : first) penalty = penalty + gradient.square().sum();
  inputs.push_back(start);
  inputs.push_back(rows);
  variable_list found = first;
  for (const at::Tensor& x : grad({penalty}, inputs)) found.push_back(x);
  return found;
}

TEST_F(FusedAutograd, C26_SecondDerivativesAreRight) {
  for (const Mask& mask :
       {Mask::none(), Mask::causal(), Mask::attend(testing::lower_triangle(L, S, -2))}) {
    for (const double p : {0.0, 0.4}) {
      GradientCall call = make();
      call.operands[3] = at::randn({1, H, L, S}, at::kDouble);
      call.logsumexp_gradient = at::randn({B, H, L}, at::kDouble);
      call.options.mask(mask).dropout_p(p).logit_clip(2.0);
      const KernelDropoutGuard the_same_dropout;
      const variable_list expected = second_gradients(call, Backend::kReference, 3);
      const variable_list found = second_gradients(call, Backend::kFused, 3);
      for (size_t i = 0; i < expected.size(); ++i) {
        // Three levels of sums of some ten terms of order 10.
        EXPECT_TRUE(is_near(found[i], expected[i], 1e-10)) << i << " p " << p;
      }
    }
  }
}

TEST_F(FusedAutograd, C26_SecondDerivativesTellEqualOperandsApart) {
  const at::Tensor x = at::randn({1, H, L, D}, at::kDouble);
  const auto second = [&](Backend backend) {
    const at::Tensor leaf = x.detach().requires_grad_();
    const at::Tensor y = leaf * 1.5;
    const at::Tensor output = attention(y, y, y, fused().backend(backend)).output;
    const at::Tensor first = grad({output.square().sum()}, {leaf}, {}, std::nullopt, true)[0];
    return grad({first.square().sum()}, {leaf})[0];
  };
  const at::Tensor expected = second(Backend::kReference);
  EXPECT_TRUE(
      is_near(second(Backend::kFused), expected, 1e-13 * expected.abs().max().item<double>()));
}

TEST_F(FusedAutograd, C26_ValuesHaveNoSecondDerivativeThroughLogsumexp) {
  const GradientCall call = make();
  const PerOperand leaves = call.leaves({false, false, true, false});
  const auto result = attention(leaves[0], leaves[1], leaves[2], fused().need_logsumexp(true));
  const at::Tensor first =
      grad({result.logsumexp.sum()}, {leaves[2]}, {}, std::nullopt, /*create_graph=*/true)[0];
  EXPECT_TRUE(at::equal(first, at::zeros_like(first)));
}

TEST_F(FusedAutograd, C26_SecondDerivativesAreTheSameInsideAndOutsideOfAutocast) {
  const at::Tensor x = at::randn({1, H, L, D});
  const auto derivatives = [&](bool inside) {
    const at::Tensor leaf = x.detach().requires_grad_();
    const at::Tensor output = attention(leaf, leaf, leaf, fused()).output, start = x * 0.5;
    std::optional<Autocast> autocast;
    if (inside) autocast.emplace(at::kBFloat16);
    const at::Tensor first = grad({output}, {leaf}, {start}, std::nullopt, true)[0];
    return variable_list{first, grad({first.square().sum()}, {leaf})[0]};
  };
  const variable_list inside = derivatives(true), outside = derivatives(false);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_GT(inside[i].abs().max().item<double>(), 0.0);
    EXPECT_TRUE(at::equal(inside[i], outside[i])) << i;
  }
}

}  // namespace
}  // namespace attn
