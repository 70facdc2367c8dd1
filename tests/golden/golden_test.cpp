// Every case of cases.json on every backend, against what eager Python computed.

#include <attn/functional.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "golden/check.h"

namespace attn::golden {
namespace {

const std::string kFolder = ATTN_GOLDEN;

std::string data_file(const Case& declared) {
  return kFolder + "/data/" + declared.name + ".safetensors";
}

struct GoldenTest : ::testing::TestWithParam<Case> {};

TEST_P(GoldenTest, AgreesWithPythonOnEveryBackend) {
  CheckOptions options;
  options.declared = {GetParam()};
  for (const Row& row : check_path(data_file(GetParam()), options)) {
    if (row.verdict == Verdict::kSkipped) {
      std::cout << row.name << " skipped: " << row.reason << "\n";
      continue;
    }
    EXPECT_EQ(row.verdict, Verdict::kAgrees)
        << row.reason << " on " << row.backend << ": " << row.worst.tensor << " is "
        << row.worst.from_float64 << " from float64, bound " << row.worst.tolerance;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest,
                         ::testing::ValuesIn(read_cases(kFolder + "/cases.json")),
                         [](const auto& parameter) { return parameter.param.name; });

TEST(GoldenCases, AreAtLeastEightyOverEveryModule) {
  std::set<std::string> modules;
  const std::vector<Case> cases = read_cases(kFolder + "/cases.json");
  for (const Case& declared : cases) modules.insert(declared.module);
  EXPECT_GE(cases.size(), 80U);
  EXPECT_EQ(modules.size(), 9U);
}

TEST(GoldenCases, HaveOneFileEachAndNoOtherFiles) {
  std::set<std::string> declared, found;
  for (const Case& c : read_cases(kFolder + "/cases.json")) declared.insert(data_file(c));
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + "/data")) {
    found.insert(entry.path().string());
  }
  EXPECT_EQ(found, declared);
}

}  // namespace
}  // namespace attn::golden
