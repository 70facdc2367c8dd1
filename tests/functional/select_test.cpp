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
  for (const Backend backend : {Backend::kFused, Backend::kLibTorch, Backend::kReference}) {
    const std::optional<std::string> reason = why_not(backend, x, x, x);
    const std::string error = error_of([&] { ran(backend); });
    EXPECT_EQ(reason.has_value(), !error.empty());
    if (reason) {
      EXPECT_EQ(error, "[attention] backend: " + std::string(to_string(backend)) +
                           " cannot take this call: " + *reason);
    }
    const bool built = std::count(available.begin(), available.end(), backend) > 0;
    EXPECT_TRUE(built || reason.has_value());
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
