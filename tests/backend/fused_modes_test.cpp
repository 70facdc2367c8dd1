// The fused backend among LibTorch's modes: inference, autocast, and what it refuses.

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/utils.h>

#include "support/autocast.h"
#include "support/fused.h"
#include "support/tensors.h"

namespace attn {
namespace {

using testing::Autocast;
using testing::error_of;
using testing::fused;
using testing::on_every_target;

struct FusedModes : ::testing::Test {
  at::Tensor query = at::randn({2, 4, 5, 8}), key = at::randn({2, 2, 7, 8}),
             value = at::randn({2, 2, 7, 6});

  at::Tensor output() const { return attention(query, key, value, fused(Mask::causal())).output; }
};

TEST_F(FusedModes, InferenceModeAndNoGradGiveTheSameBits) {
  const at::Tensor expected = output();
  for (at::Tensor* tensor : {&query, &key, &value}) tensor->requires_grad_();
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(output(), expected));
    EXPECT_FALSE(output().requires_grad());
    EXPECT_EQ(attention(query, key, value).backend, Backend::kFused);
  }
  const c10::InferenceMode inference;
  EXPECT_TRUE(at::equal(output(), expected));
  EXPECT_TRUE(output().is_inference());
  const at::Tensor inferred = query + 0.0;
  EXPECT_TRUE(at::equal(attention(inferred, key, value, fused(Mask::causal())).output, expected));
  EXPECT_EQ(attention(query, key, value).backend, Backend::kFused);
}

TEST_F(FusedModes, AutocastCastsAsItDoesForLibTorchsAttention) {
  const at::Tensor wide_key = key.repeat_interleave(2, 1), wide_value = wide_key;
  for (const auto cast : {at::kBFloat16, at::kHalf}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const auto typed = [&](const at::Tensor& x) { return x.to(dtype); };
      const auto cast_to = dtype == at::kDouble ? at::kDouble : cast;
      const auto by_hand = [&](const at::Tensor& x) { return x.to(dtype).to(cast_to); };
      const auto options = fused(Mask::causal()).need_weights(true).need_logsumexp(true);
      const auto expected = attention(by_hand(query), by_hand(key), by_hand(value), options);
      const Autocast autocast(cast);
      const auto actual = attention(typed(query), typed(key), typed(value), options);
      const auto sdpa =
          at::scaled_dot_product_attention(typed(query), typed(wide_key), typed(wide_value));
      EXPECT_EQ(actual.output.scalar_type(), sdpa.scalar_type());
      EXPECT_TRUE(at::equal(actual.output, expected.output)) << dtype << " to " << cast;
      EXPECT_TRUE(at::equal(actual.weights, expected.weights));
      EXPECT_TRUE(at::equal(actual.logsumexp, expected.logsumexp));
    }
  }
}

TEST_F(FusedModes, AutocastMakesOneDtypeOfTwo) {
  const auto bf16 = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
  const at::Tensor expected = attention(bf16(query), bf16(key), bf16(value), fused()).output;
  const Autocast autocast(at::kBFloat16);
  EXPECT_TRUE(at::equal(attention(query, bf16(key), value, fused()).output, expected));
  EXPECT_TRUE(at::equal(attention(bf16(query), key, bf16(value), fused()).output, expected));
}

TEST_F(FusedModes, AutocastLeavesFloat64AloneAndSoCannotMixIt) {
  const Autocast autocast(at::kBFloat16);
  EXPECT_NE(error_of([&] { attention(query, key.to(at::kDouble), value, fused()); }), "");
  EXPECT_NE(error_of([&] { attention(query.to(at::kDouble), key, value, fused()); }), "");
}

TEST_F(FusedModes, AskingForWeightsOrLogsumexpDoesNotChangeABitOfTheOutput) {
  torch::manual_seed(3);
  for (const int64_t L : {1, 2, 3, 40}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const at::Tensor q = at::randn({1, 6, L, 8}).to(dtype),
                       k = at::randn({1, 2, 600, 8}).to(dtype);
      const at::Tensor padding = at::randn({1, 1, 1, 600}).gt(0);
      for (const Mask& mask :
           {Mask::none(), Mask::causal(), Mask::causal_bottom_right(), Mask::attend(padding),
            Mask::attend(padding.logical_xor(padding)), Mask::bias(at::randn({L, 600}))}) {
        on_every_target([&] {
          for (const double score : {-std::numeric_limits<double>::infinity(), -1e9}) {
            const at::Tensor plain = attention(q, k, k, fused(mask).masked_score(score)).output;
            const auto asked = attention(
                q, k, k, fused(mask).masked_score(score).need_weights(true).need_logsumexp(true));
            EXPECT_TRUE(at::equal(asked.output, plain)) << L << dtype;
            EXPECT_EQ(asked.weights.sizes(), at::IntArrayRef({1, 6, L, 600}));
          }
        });
      }
    }
  }
}

/// A call that the fused backend refuses for a reason.
struct Refused {
  std::string reason;
  at::Tensor query, key, value;
  AttentionOptions options = {};

  void expect(std::optional<Backend> instead) const {
    EXPECT_EQ(why_not(Backend::kFused, query, key, value, options), reason);
    const auto forced = AttentionOptions(options).backend(Backend::kFused);
    try {
      attention(query, key, value, forced);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const BackendError& error) {
      EXPECT_EQ(error.backend(), Backend::kFused);
      EXPECT_EQ(error.reason(), reason);
      EXPECT_EQ(std::string(error.what_without_backtrace()),
                "[attention] backend: fused cannot take this call: " + reason);
    }
    if (instead) {
      EXPECT_EQ(attention(query, key, value, options).backend, *instead);
    }
  }
};

TEST_F(FusedModes, TakesWhatItDoesNotRefuse) {
  EXPECT_EQ(why_not(Backend::kFused, query, key, value), std::nullopt);
  EXPECT_EQ(attention(query, key, value).backend, Backend::kFused);
}

TEST_F(FusedModes, RefusesWeightsThatNeedAGradient) {
  const std::string reason = "it has no gradient through returned weights (need_weights)";
  const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(); };
  const auto asking = AttentionOptions().need_weights(true);
  const auto bias = AttentionOptions().mask(Mask::bias(leaf(at::randn({5, 7})))).need_weights(true);
  for (const Refused& call : {Refused{reason, leaf(query), key, value, asking},
                              Refused{reason, query, leaf(key), value, asking},
                              Refused{reason, query, key, leaf(value), asking},
                              Refused{reason, query, key, value, bias}}) {
    call.expect(Backend::kReference);
    const at::NoGradGuard no_grad;
    EXPECT_EQ(attention(call.query, call.key, call.value, call.options).backend, Backend::kFused);
  }
}

TEST_F(FusedModes, RefusesOtherDevices) {
  Refused{"a tensor is not on the CPU", query.to(at::kMeta), key.to(at::kMeta), value.to(at::kMeta)}
      .expect(Backend::kReference);
}

TEST_F(FusedModes, RefusesTensorsWithoutPlainMemory) {
  const std::string reason = "a tensor is not dense, or is a wrapper of another";
  Refused{reason, query.to_sparse(), key, value}.expect(std::nullopt);
  Refused{reason, query, key.to_sparse(), value}.expect(std::nullopt);
  const auto batched = [](const at::Tensor& x) {  // as vmap does
    return at::functorch::makeBatched(x.unsqueeze(0), 0, 1);
  };
  Refused{reason, batched(query), batched(key), batched(value)}.expect(std::nullopt);
}

TEST_F(FusedModes, RefusesForwardModeDerivatives) {
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  const auto dual = [&](const at::Tensor& x) {
    return at::_make_dual(x, at::ones_like(x), static_cast<int64_t>(level));
  };
  const std::string reason = "a forward-mode gradient is asked for";
  const auto bias = AttentionOptions().mask(Mask::bias(dual(at::randn({5, 7}))));
  for (const Refused& call :
       {Refused{reason, dual(query), key, value}, Refused{reason, query, key, dual(value)},
        Refused{reason, query, key, value, bias}}) {
    call.expect(Backend::kReference);
  }
  torch::autograd::ForwardADLevel::release_idx(level);
}

TEST_F(FusedModes, RefusesATraceWhichWouldKeepItsResultAsAConstant) {
  bool ran = false;
  torch::jit::tracer::trace(
      {query, key, value},
      [&](torch::jit::Stack inputs) -> torch::jit::Stack {
        Refused{"a trace does not see into it", inputs[0].toTensor(), inputs[1].toTensor(),
                inputs[2].toTensor()}
            .expect(Backend::kLibTorch);
        ran = true;
        return {attention(inputs[0].toTensor(), inputs[1].toTensor(), inputs[2].toTensor()).output};
      },
      [](const at::Tensor&) { return std::string(); });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace attn
