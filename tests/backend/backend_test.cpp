#include <attn/backend.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::error_of;

/// Sets ATTN_BACKEND for the length of a test.
class Environment {
 public:
  explicit Environment(const char* value) { setenv("ATTN_BACKEND", value, /*overwrite=*/1); }
  ~Environment() { unsetenv("ATTN_BACKEND"); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

TEST(Backend, HasANameThatParsesBack) {
  for (const char* name : {"auto", "reference", "fused", "libtorch"}) {
    EXPECT_EQ(to_string(parse_backend(name)), name);
  }
  std::ostringstream stream;
  stream << Backend::kFused;
  EXPECT_EQ(stream.str(), "fused");
}

TEST(Backend, RefusesAnUnknownNameAndListsTheKnownOnes) {
  EXPECT_EQ(error_of([] { parse_backend("cuda"); }),
            "[parse_backend] name: expected auto, reference, fused or libtorch, got \"cuda\"");
}

TEST(BackendGuard, AppliesToItsScopeAndNests) {
  EXPECT_EQ(default_backend(), Backend::kAuto);
  {
    const BackendGuard outer(Backend::kReference);
    EXPECT_EQ(default_backend(), Backend::kReference);
    {
      const BackendGuard inner(Backend::kFused);
      EXPECT_EQ(default_backend(), Backend::kFused);
    }
    EXPECT_EQ(default_backend(), Backend::kReference);
  }
  EXPECT_EQ(default_backend(), Backend::kAuto);
}

TEST(BackendGuard, LeavesOtherThreadsAlone) {
  const BackendGuard guard(Backend::kFused);
  Backend elsewhere = Backend::kFused;
  std::thread([&] { elsewhere = default_backend(); }).join();
  EXPECT_EQ(elsewhere, Backend::kAuto);
}

TEST(BackendEnvironment, IsTheDefaultUntilAGuardSaysOtherwise) {
  const Environment environment("libtorch");
  EXPECT_EQ(default_backend(), Backend::kLibTorch);
  const BackendGuard guard(Backend::kReference);
  EXPECT_EQ(default_backend(), Backend::kReference);
}

TEST(BackendEnvironment, IsNamedWhenItsValueIsUnknown) {
  const Environment environment("fast");
  EXPECT_EQ(
      error_of([] { default_backend(); }),
      "[environment] ATTN_BACKEND: expected auto, reference, fused or libtorch, got \"fast\"");
}

}  // namespace
}  // namespace attn
