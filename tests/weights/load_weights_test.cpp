#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <attn/weights.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <utility>
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
using testing::test_data;
using Names = std::vector<std::string>;

TEST(LoadWeights, FillsAModuleFromATorchScriptArchive) {
  Projections module;
  const LoadReport report = load_weights(module, test_data("weights/traced.ts"));
  expect_equal(state_of(*module), read_weights(test_data("weights/traced.ts")));
  EXPECT_EQ(report.loaded, (Names{"W_QKV.weight", "W_QKV.bias", "W_O.weight", "W_O.bias"}));
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty() && report.mismatched.empty() &&
              report.skipped.empty());
}

TEST(LoadWeights, FillsAModuleFromSafetensorsInAnyOrder) {
  NamedTensors file = fitting();
  std::swap(file[0], file[3]);
  const TempFile temp(safetensors_bytes(file));
  Projections module;
  load_weights(module, temp.path());
  expect_equal(state_of(*module), fitting());
}

TEST(LoadWeights, NamesWhatIsMissingAndUnexpected) {
  NamedTensors file = fitting();
  file[1].first = "W_QKV.offset";
  file.emplace_back("steps", at::zeros({}, at::kLong));
  const WeightsError error = expect_refused(file);
  EXPECT_EQ(error.report().missing, Names{"W_QKV.bias"});
  EXPECT_EQ(error.report().unexpected, (Names{"W_QKV.offset", "steps"}));
  EXPECT_TRUE(says(error, "missing: W_QKV.bias"));
  EXPECT_TRUE(says(error, "unexpected: W_QKV.offset"));
  EXPECT_TRUE(says(error, "unexpected: steps"));
}

TEST(LoadWeights, OnlyReportsMissingAndUnexpectedWhenNotStrict) {
  NamedTensors file = fitting();
  file[1].first = "W_QKV.offset";
  const TempFile temp(safetensors_bytes(file));
  Projections module;
  const at::Tensor bias = module->W_QKV->bias.detach().clone();
  const LoadReport report = load_weights(module, temp.path(), LoadOptions().strict(false));
  EXPECT_EQ(report.loaded, (Names{"W_QKV.weight", "W_O.weight", "W_O.bias"}));
  EXPECT_EQ(report.missing, Names{"W_QKV.bias"});
  EXPECT_EQ(report.unexpected, Names{"W_QKV.offset"});
  EXPECT_TRUE(at::equal(module->W_O->weight, file[2].second));
  EXPECT_TRUE(at::equal(module->W_QKV->bias, bias));
}

TEST(LoadWeights, RefusesEveryOtherShapeStrictOrNot) {
  const std::vector<std::pair<at::Tensor, std::string>> shapes = {
      {at::ones({8, 4}), "[8, 4]"},   {at::ones({64}), "[64]"}, {at::ones({1, 8, 8}), "[1, 8, 8]"},
      {at::ones({1, 8}), "[1, 8]"},   {at::ones({8}), "[8]"},   {at::ones({}), "[]"},
      {at::ones({4, 16}), "[4, 16]"}, {at::ones({0}), "[0]"}};
  for (const auto& [tensor, text] : shapes) {
    for (const bool strict : {true, false}) {
      NamedTensors file = fitting();
      file[2].second = tensor;
      const WeightsError error = expect_refused(file, LoadOptions().strict(strict));
      ASSERT_EQ(error.report().mismatched.size(), 1U) << text;
      EXPECT_EQ(error.report().mismatched[0].name, "W_O.weight");
      EXPECT_EQ(error.report().mismatched[0].expected, "[8, 8] float32");
      EXPECT_EQ(error.report().mismatched[0].got, text + " float32");
    }
  }
}

TEST(LoadWeights, RefusesATransposedWeight) {
  NamedTensors file = fitting();
  file[0].second = file[0].second.t();
  EXPECT_TRUE(says(expect_refused(file),
                   "mismatched: W_QKV.weight: expected [24, 8] float32, got [8, 24] float32"));
}

TEST(LoadWeights, LeavesTheModuleUntouchedWhenOnlyTheLastTensorFails) {
  for (const bool strict : {true, false}) {
    NamedTensors file = fitting();
    file[3].second = at::ones({7});
    expect_refused(file, LoadOptions().strict(strict));
  }
  NamedTensors file = fitting();
  file.pop_back();
  EXPECT_EQ(expect_refused(file).report().missing, Names{"W_O.bias"});
}

TEST(LoadWeights, SaysEverythingInOneReadableMessage) {
  NamedTensors file = fitting();
  file[0].second = file[0].second.to(at::kLong);
  file[1].first = "extra";
  file[2].second = at::ones({64}, at::kHalf);
  const TempFile temp(safetensors_bytes(file));
  const WeightsError error = expect_refused(Projections(), temp.path());
  const std::string text = error.what();
  EXPECT_EQ(text.substr(0, text.find("expected")), "[load_weights] path: ");
  EXPECT_NE(text.find("ProjectionsImpl, got others: " + temp.path() +
                      "\n"
                      "loaded 0, missing 1, unexpected 1, mismatched 2, skipped 0\n"
                      "  missing: W_QKV.bias\n"
                      "  unexpected: extra\n"
                      "  mismatched: W_QKV.weight: expected [24, 8] float32, got [24, 8] int64\n"
                      "  mismatched: W_O.weight: expected [8, 8] float32, got [64] float16"),
            std::string::npos)
      << text;
  EXPECT_EQ(text, error.what_without_backtrace()) << "users see no backtrace";
}

TEST(LoadWeights, PrintsItsReport) {
  Projections module;
  std::ostringstream text;
  text << load_weights(module, test_data("weights/traced.ts"));
  EXPECT_EQ(text.str(), "loaded 4, missing 0, unexpected 0, mismatched 0, skipped 0");
}

TEST(LoadWeights, UsesOnlyNamesUnderThePrefix) {
  NamedTensors file = {{"head.weight", at::ones({2})}};
  for (const char* layer : {"layers.0.", "layers.1.", "layers.10."}) {
    for (auto& [name, tensor] : fitting(layer)) {
      file.emplace_back(name,
                        std::string_view(layer) == "layers.1." ? tensor : at::zeros_like(tensor));
    }
  }
  const TempFile temp(safetensors_bytes(file));
  Projections module;
  const LoadReport report = load_weights(module, temp.path(), LoadOptions().prefix("layers.1."));
  expect_equal(state_of(*module), fitting());
  EXPECT_EQ(report.loaded.size(), 4U);
  EXPECT_EQ(report.skipped.size(), 9U);
  EXPECT_EQ(report.skipped.front(), "head.weight");
}

TEST(LoadWeights, NamesWithoutThePrefixInTheReport) {
  NamedTensors file = fitting("a.");
  file[3].first = "a.extra";
  const WeightsError error = expect_refused(file, LoadOptions().prefix("a."));
  EXPECT_EQ(error.report().missing, Names{"W_O.bias"});
  EXPECT_EQ(error.report().unexpected, Names{"extra"});
}

TEST(LoadWeights, SuggestsThePrefixNearestToOneThatMatchesNothing) {
  NamedTensors file;
  for (const char* layer : {"encoder.layers.0.", "encoder.layers.1.", "encoder.layers.2."}) {
    for (auto& tensor : fitting(layer)) file.push_back(tensor);
  }
  file.emplace_back("decoder.W_QKV.weight", at::ones({1}));
  const WeightsError error =
      expect_refused(file, LoadOptions().prefix("encoder.layer.2.").strict(false));
  EXPECT_TRUE(says(error, "got \"encoder.layer.2.\""));
  EXPECT_TRUE(says(
      error,
      "did you mean prefix \"encoder.layers.2.\", \"encoder.layers.0.\", \"encoder.layers.1.\"?"));
  EXPECT_EQ(error.report().skipped.size(), 13U);
}

TEST(LoadWeights, SuggestsAPrefixWhenNoneWasGivenOrItsDotIsMissing) {
  EXPECT_TRUE(says(expect_refused(fitting("model.attention.")),
                   "did you mean prefix \"model.attention.\"?"));
  EXPECT_TRUE(says(expect_refused(fitting("model."), LoadOptions().prefix("model")),
                   "did you mean prefix \"model.\"?"));
  EXPECT_TRUE(
      says(expect_refused(fitting(), LoadOptions().prefix("model.")), "did you mean prefix \"\"?"));
}

TEST(LoadWeights, ShowsNamesOfTheFileWhenNoPrefixFits) {
  const WeightsError error =
      expect_refused({{"one", at::ones({1})}, {"two", at::ones({1})}}, LoadOptions().prefix("x."));
  EXPECT_TRUE(says(error, "the file has: \"one\", \"two\""));
  EXPECT_TRUE(says(expect_refused(NamedTensors{}), "the file has: no tensors"));
}

TEST(LoadWeights, PassesOnWhyAFileCannotBeRead) {
  EXPECT_TRUE(says(expect_refused(Projections(), test_data("weights/frozen.ts")), "frozen"));
  EXPECT_TRUE(
      says(expect_refused(Projections(), test_data("weights/absent.ts")), "no file of this name"));
  EXPECT_THROW(load_weights(Projections(), test_data("weights/absent.ts")), c10::Error);
}

}  // namespace
}  // namespace attn
