// What the modules gain from the fused backend without asking: it runs by default, and reads what the
// projections wrote.

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <attn/attn.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "support/recorded_operators.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::copies_during;
using testing::is_near;
using testing::lower_triangle;
using testing::operators_during;

constexpr int64_t kBatch = 2, kQueries = 70, kKeys = 90, kWidth = 64, kHeads = 4;

/// A call of a module with parameters that require gradients.
struct ModuleCall {
  std::string name;
  std::function<at::Tensor()> run;
};

std::vector<ModuleCall> calls() {
  torch::manual_seed(6);
  const at::Tensor x = at::randn({kBatch, kQueries, kWidth}),
                   y = at::randn({kBatch, kKeys, kWidth});
  const at::Tensor open = at::randn({kBatch, 1, kKeys}).gt(-1),
                   window = at::randn({kQueries, kKeys}).gt(-1);
  const auto projected = ProjectedMultiheadAttentionOptions(kWidth).n_heads(kHeads);
  XavierMultiheadAttention xavier(kWidth, kWidth, 32, kWidth, kHeads);
  EinsumMultiheadAttention einsum(kWidth, kHeads);
  ProjectedMultiheadAttention proj(projected);
  PreprojectedMultiheadAttention preprojected(projected);
  PreprojectedMultiheadAttention clipped(projected);
  clipped->attentionScore->options.use_tanh(true).C(10);
  CausalMultiheadAttention causal(kWidth, kHeads);
  const at::Tensor blocked = window.logical_not().unsqueeze(0);
  return {
      {"Xavier", [=]() mutable { return std::get<0>(xavier(x, x, x)); }},
      {"Xavier, masked", [=]() mutable { return std::get<0>(xavier(x, y, y, open)); }},
      {"Einsum", [=]() mutable { return einsum(x, x, x); }},
      {"Einsum, masked", [=]() mutable { return einsum(y, y, x, window); }},
      {"Projected", [=]() mutable { return proj(x); }},
      {"Projected, masked", [=]() mutable { return proj(x, y, blocked); }},
      {"Projected, one query batch", [=]() mutable { return proj(x.narrow(0, 0, 1), y); }},
      {"Preprojected", [=]() mutable { return preprojected(x, x, x); }},
      {"Preprojected, clipped", [=]() mutable { return clipped(x, y, y, blocked); }},
      {"Causal", [=]() mutable { return causal(x); }},
      {"Causal function", [=] { return multihead_masked_attention(x, y, y, kHeads); }},
  };
}

at::Tensor by(Backend backend, const ModuleCall& call) {
  const BackendGuard guard(backend);
  return call.run();
}

TEST(FusedModules, RunItByDefaultWhereNoGradientIsWanted) {
  for (const ModuleCall& call : calls()) {
    const at::NoGradGuard no_grad;
    const at::Tensor fused = by(Backend::kFused, call);
    EXPECT_TRUE(at::equal(by(Backend::kAuto, call), fused)) << call.name;
    for (const std::string& name : operators_during([&] { by(Backend::kAuto, call); })) {
      EXPECT_NE(name, "aten::softmax") << call.name;
      EXPECT_NE(name, "aten::scaled_dot_product_attention") << call.name;
    }
    const c10::InferenceMode inference;
    EXPECT_TRUE(at::equal(by(Backend::kAuto, call), fused)) << call.name;
  }
}

TEST(FusedModules, AgreeWithTheReferenceAndWithThemselvesInEveryGradMode) {
  for (const ModuleCall& call : calls()) {
    const at::Tensor reference = by(Backend::kReference, call);
    // Projections of 64 terms and attention over up to 90 keys, outputs of order 1: LibTorch's linear,
    // oneDNN and the backends each sum in orders of their own, 2 · √(64 + 64 + 90) roundings of 2^-24,
    // and four times that for the largest of some thousands; a clip multiplies by C = 10.
    const double bound = 2e-6 * (call.name == "Preprojected, clipped" ? 10 : 4);
    EXPECT_TRUE(is_near(by(Backend::kAuto, call), reference, bound)) << call.name;
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(is_near(by(Backend::kAuto, call), reference, bound)) << call.name;
  }
}

TEST(FusedModules, CopyNothingBetweenTheProjectionsAndTheKernel) {
  const std::vector<std::string> none;
  for (const ModuleCall& call : calls()) {
    const at::NoGradGuard no_grad;
    const auto copies = [&](Backend backend) { return copies_during([&] { by(backend, call); }); };
    EXPECT_EQ(copies(Backend::kAuto), none) << call.name;
    EXPECT_NE(copies(Backend::kReference), none) << call.name;  // to merge the heads, at least
  }
}

TEST(FusedModules, ReturnXaviersWeightsOfTheRowsThatTheOutputUses) {
  XavierMultiheadAttention xavier(kWidth, kWidth, 32, kWidth, kHeads);
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({kBatch, kQueries, kWidth});
  const at::Tensor mask =
      lower_triangle(kQueries, kQueries, -1).unsqueeze(0);  // the first query sees nothing
  const auto run = [&](Backend backend) {
    const BackendGuard guard(backend);
    return std::get<1>(xavier(x, x, x, mask, true));
  };
  // Weights below 1 of logits below 10: 10 · 2^-24, and their roundings.
  EXPECT_TRUE(is_near(run(Backend::kAuto), run(Backend::kReference), 4e-6));
  EXPECT_TRUE(at::equal(run(Backend::kAuto), run(Backend::kFused)));
}

}  // namespace
}  // namespace attn
