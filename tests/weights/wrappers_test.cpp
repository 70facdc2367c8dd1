#include <ATen/ops/ones.h>
#include <attn/weights.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/files.h"
#include "support/safetensors_writer.h"
#include "weights/projections.h"

namespace attn {
namespace {

using testing::expect_equal;
using testing::expect_refused;
using testing::fitting;
using testing::Projections;
using testing::safetensors_bytes;
using testing::says;
using testing::state_of;
using testing::TempFile;

LoadReport load(const NamedTensors& file, const std::string& prefix = "") {
  const TempFile temp(safetensors_bytes(file));
  Projections module;
  LoadReport report = load_weights(module, temp.path(), LoadOptions().prefix(prefix));
  expect_equal(state_of(*module), fitting());
  return report;
}

TEST(Wrappers, AreStrippedInAnyOrderAndNumber) {
  for (const char* wrappers : {"module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod.",
                               "module.module.", "_orig_mod._orig_mod.module._orig_mod."}) {
    EXPECT_EQ(load(fitting(wrappers)).loaded.size(), 4U) << wrappers;
  }
}

TEST(Wrappers, AreStrippedBeforeThePrefix) {
  for (const char* wrappers : {"module.", "_orig_mod.module."})
    load(fitting(std::string(wrappers) + "encoder.0."), "encoder.0.");
}

TEST(Wrappers, AreStrippedInsideAnEntryOfTheCheckpoint) {
  NamedTensors file = fitting("state_dict._orig_mod.module.");
  file.emplace_back("optimizer.step", at::ones({1}));
  EXPECT_EQ(load(file, "state_dict.").skipped, std::vector<std::string>{"optimizer.step"});
}

TEST(Wrappers, StayInsideOfNames) {
  // "module" is a submodule's own name here: a prefix that lacks it is an error that names it.
  const WeightsError error =
      expect_refused(fitting("layers.0.module."), LoadOptions().prefix("layers.0."));
  EXPECT_TRUE(says(error, "did you mean prefix \"layers.0.module.\"?"));
}

TEST(Wrappers, StayWhereNotEveryNameHasThem) {
  NamedTensors file = fitting("module.");
  file.emplace_back("head", at::ones({1}));
  EXPECT_TRUE(says(expect_refused(file), "did you mean prefix \"module.\"?"));
  load(file, "module.");
}

struct WrappedImpl : torch::nn::Cloneable<WrappedImpl> {
  WrappedImpl() { reset(); }
  void reset() override { module = register_module("module", Projections()); }
  Projections module = nullptr;
};

TEST(Wrappers, StayWhereTheModuleItselfHasThem) {
  for (const char* wrappers : {"module.", "module.module.", "_orig_mod.module."}) {
    const TempFile temp(safetensors_bytes(fitting(wrappers)));
    WrappedImpl module;
    load_weights(module, temp.path());
    expect_equal(state_of(module), fitting("module."));
  }
}

}  // namespace
}  // namespace attn
