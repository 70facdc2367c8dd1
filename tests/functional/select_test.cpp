#include <attn/functional.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::error_of;
using testing::waves;

struct SelectTest : ::testing::Test {
  at::Tensor x = waves({1, 2, 3, 4}, 0.7, 0.1);

  Backend ran(Backend requested = Backend::kAuto) {
    return attention(x, x, x, AttentionOptions().backend(requested)).backend;
  }

  /// Calls that differ in who takes them.
  static std::vector<AttentionOptions> calls() {
    return {AttentionOptions(), AttentionOptions().logit_clip(10.0),
            AttentionOptions().need_weights(true), AttentionOptions().dropout_p(0.5),
            AttentionOptions().mask(Mask::causal()).masked_score(-1e9)};
  }
};

TEST_F(SelectTest, SaysWhichBackendRan) {
  EXPECT_EQ(ran(Backend::kReference), Backend::kReference);
}

TEST_F(SelectTest, TakesTheOptionBeforeTheGuard) {
  const BackendGuard guard(Backend::kLibTorch);
  EXPECT_EQ(ran(Backend::kReference), Backend::kReference);
}

TEST_F(SelectTest, GivesTheReasonForEveryBackendThatItThrowsFor) {
  const std::vector<Backend> available = available_backends();
  for (const AttentionOptions& call : calls()) {
    for (const Backend backend : {Backend::kFused, Backend::kLibTorch, Backend::kReference}) {
      const std::optional<std::string> reason = why_not(backend, x, x, x, call);
      const std::string error =
          error_of([&] { attention(x, x, x, AttentionOptions(call).backend(backend)); });
      EXPECT_EQ(reason.has_value(), !error.empty());
      if (reason) {
        EXPECT_EQ(error, "[attention] backend: " + std::string(to_string(backend)) +
                             " cannot take this call: " + *reason);
      }
      const bool built = std::count(available.begin(), available.end(), backend) > 0;
      EXPECT_TRUE(built || reason.has_value());
    }
  }
}

TEST_F(SelectTest, ThrowsAnErrorThatHoldsTheBackendAndTheReason) {
  const auto options = AttentionOptions().backend(Backend::kLibTorch).logit_clip(10.0);
  try {
    attention(x, x, x, options);
    FAIL() << "nothing was thrown";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.backend(), Backend::kLibTorch);
    EXPECT_EQ(error.reason(), why_not(Backend::kLibTorch, x, x, x, options));
  }
}

TEST_F(SelectTest, AsksTheBackendsInOrderAndTakesTheFirstThatDoesNotRefuse) {
  for (const AttentionOptions& call : calls()) {
    const std::vector<Backend> available = available_backends();
    const auto first = std::find_if(available.begin(), available.end(), [&](Backend backend) {
      return !why_not(backend, x, x, x, call);
    });
    EXPECT_EQ(attention(x, x, x, call).backend, *first);
  }
}

TEST_F(SelectTest, NeverRefusesAutoOrTheReference) {
  EXPECT_EQ(why_not(Backend::kAuto, x, x, x), std::nullopt);
  EXPECT_EQ(why_not(Backend::kReference, x, x, x), std::nullopt);
  EXPECT_EQ(available_backends().back(), Backend::kReference);
}

TEST_F(SelectTest, ThrowsWhereAGuardedBackendRefusesInsteadOfFallingBack) {
  if (!why_not(Backend::kFused, x, x, x)) return;
  const BackendGuard guard(Backend::kFused);
  EXPECT_NE(error_of([&] { ran(); }).find("fused cannot take this call"), std::string::npos);
}

}  // namespace
}  // namespace attn
