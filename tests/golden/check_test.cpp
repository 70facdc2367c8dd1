// The comparison itself: it must fail where something is wrong.

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <attn/functional.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "golden/check.h"
#include "golden/formula.h"
#include "support/tensors.h"

namespace attn::golden {
namespace {

using attn::testing::error_of;

Case first_case() { return read_cases(std::string(ATTN_GOLDEN) + "/cases.json").front(); }

Golden golden_of(const std::string& name) {
  return read_golden_file(std::string(ATTN_GOLDEN) + "/data/" + name + ".safetensors")
      .goldens.front();
}

Golden first_golden() { return golden_of(first_case().name); }

TEST(Formula, GivesTheBitsThatPythonPins) {
  // tests/python/test_export.py pins the same numbers.
  const uint64_t salt = formula_salt("input.q", 1);
  EXPECT_EQ(salt, 0x1F3FC6E6D8AB56EF);
  EXPECT_EQ(formula_bits(salt, 0), 0x208341839C2731A5);
  EXPECT_EQ(formula_bits(salt, 1), 0x6717BF1614CF7CC4);
}

TEST(Formula, TakesTheTopByteAsANumberOfSixtyFourths) {
  const at::Tensor expected = at::tensor({(0x20 - 128) / 64.0, (0x67 - 128) / 64.0}, at::kDouble);
  EXPECT_TRUE(formula_tensor("input.q", 1, {2}, 0, at::kDouble).equal(expected));
  EXPECT_TRUE(formula_tensor("input.q", 1, {2}, -3, at::kDouble).equal(expected / 8));
}

TEST(Formula, IsExactInEveryDtype) {
  const at::Tensor exact = formula_tensor("input.q", 1, {1000}, 3, at::kDouble);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(formula_tensor("input.q", 1, {1000}, 3, dtype).to(at::kDouble).equal(exact));
  }
}

TEST(Formula, KeepsTheValuesInEveryLayoutButExpanded) {
  const at::Tensor x = formula_tensor("input.q", 1, {2, 3, 4}, 0, at::kFloat);
  for (const char* layout : {"contiguous", "transposed", "strided", "fused"}) {
    EXPECT_TRUE(with_layout(x, layout).equal(x)) << layout;
  }
  EXPECT_EQ(with_layout(x, "transposed").strides(), at::IntArrayRef({12, 1, 3}));
  EXPECT_EQ(with_layout(x, "strided").strides(), at::IntArrayRef({24, 8, 2}));
  EXPECT_EQ(with_layout(x, "fused").strides(), at::IntArrayRef({36, 12, 1}));
  EXPECT_EQ(with_layout(x, "expanded").stride(0), 0);
  EXPECT_NE(error_of([&] { with_layout(x, "odd"); }).find("got \"odd\""), std::string::npos);
}

TEST(Projections, NoticeASingleWrongElement) {
  const at::Tensor x = formula_tensor("input.q", 1, {5000}, 0, at::kFloat);
  at::Tensor wrong = x.clone();
  wrong[4321] += 0.5;
  EXPECT_TRUE(projections(wrong).sub(projections(x)).abs().eq(0.5).all().item<bool>());
}

TEST(Compare, DemandsNaNAndInfinityInTheSamePlaces) {
  Golden golden;
  golden.tolerance = {{"output", 1.0}};
  golden.tensors = {{"output", at::tensor({1.f, NAN, -INFINITY})},
                    {"f64.output", at::tensor({1.0, double(NAN), -double(INFINITY)})}};
  EXPECT_TRUE(compare(golden, "output", at::tensor({1.5f, NAN, -INFINITY})).agrees());
  EXPECT_FALSE(compare(golden, "output", at::tensor({1.f, 0.f, -INFINITY})).agrees());
  EXPECT_FALSE(compare(golden, "output", at::tensor({1.f, NAN, INFINITY})).agrees());
  EXPECT_FALSE(compare(golden, "output", at::tensor({NAN, NAN, -INFINITY})).agrees());
}

TEST(Compare, MeasuresAgainstFloat64AndNotAgainstPython) {
  Golden golden;
  golden.tolerance = {{"output", 0.1}};
  golden.tensors = {{"output", at::tensor({1.05f})}, {"f64.output", at::tensor({1.0})}};
  EXPECT_TRUE(compare(golden, "output", at::tensor({0.95f})).agrees());
  EXPECT_FALSE(compare(golden, "output", at::tensor({1.125f})).agrees());
}

TEST(Compare, RefusesAnotherShapeOrDtype) {
  Golden golden;
  golden.tolerance = {{"output", 1e9}};
  golden.tensors = {{"output", at::ones({2, 3})}, {"f64.output", at::ones({2, 3}, at::kDouble)}};
  EXPECT_FALSE(compare(golden, "output", at::ones({3, 2})).agrees());
  EXPECT_FALSE(compare(golden, "output", at::ones({2, 3}, at::kDouble)).agrees());
}

TEST(Compare, TellsSameBitsFromSameValues) {
  Golden golden;
  golden.tensors = {{"output", at::zeros({2})}};
  EXPECT_TRUE(compare(golden, "output", at::zeros({2})).same_bits);
  EXPECT_FALSE(compare(golden, "output", at::zeros({2}).neg()).same_bits);
}

TEST(CheckGolden, FailsWhereAnyResultIsBeyondItsBound) {
  Golden golden = first_golden();
  ASSERT_EQ(check_golden(golden).front().verdict, Verdict::kAgrees);
  for (auto& [name, tensor] : golden.tensors) {
    if (name == "f64.output") tensor = tensor + 1.0;
  }
  const Row row = check_golden(golden).front();
  EXPECT_EQ(row.verdict, Verdict::kDisagrees);
  EXPECT_EQ(row.worst.tensor, "output");
}

TEST(CheckGolden, IsStaleWhenAnyFieldOfTheDeclarationDiffers) {
  CheckOptions options;
  options.declared = {first_case()};
  EXPECT_EQ(check_golden(first_golden(), options).front().verdict, Verdict::kAgrees);
  Json other = first_case().source;
  other["seed"] = other["seed"].get<int>() + 1;
  options.declared = {parse_case(other)};
  EXPECT_EQ(check_golden(first_golden(), options).front().verdict, Verdict::kStale);
}

TEST(CheckGolden, SkipsABackendThatRefusesTheCaseWithItsReason) {
  CheckOptions options;
  options.backends = {Backend::kLibTorch, Backend::kReference};
  const std::vector<Row> rows = check_golden(golden_of("xavier_row_fully_masked"), options);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].verdict, Verdict::kSkipped);
  EXPECT_NE(rows[0].reason.find("masked_score"), std::string::npos) << rows[0].reason;
  EXPECT_EQ(rows[1].verdict, Verdict::kAgrees);
}

TEST(CheckGolden, ComparesDropoutOnTheReferenceAloneUnlessEverythingIsDropped) {
  CheckOptions options;
  options.backends = {Backend::kFused};
  const Row some = check_golden(golden_of("xavier_train_dropout_10_percent"), options).front();
  EXPECT_EQ(some.verdict, Verdict::kSkipped);
  EXPECT_EQ(some.reason, "it drops other weights than Python does");
  EXPECT_EQ(check_golden(golden_of("xavier_train_everything_dropped"), options).front().verdict,
            Verdict::kAgrees);
}

TEST(CheckGolden, ComparesTheFusedBackendsGradients) {
  CheckOptions options;
  options.backends = {Backend::kFused};
  Golden golden = golden_of("causal_head_size_16");
  const Row row = check_golden(golden, options).front();
  EXPECT_EQ(row.verdict, Verdict::kAgrees);
  EXPECT_EQ(row.reason, "");  // nothing was left out
  for (auto& [name, tensor] : golden.tensors) {
    if (name.starts_with("f64.grad.")) tensor = tensor + 1.0;
  }
  EXPECT_EQ(check_golden(golden, options).front().verdict, Verdict::kDisagrees);
}

TEST(CheckGolden, CreditsNoBackendWithLogitsThatItDoesNotCompute) {
  CheckOptions options;
  options.backends = {Backend::kLibTorch};
  EXPECT_EQ(check_golden(golden_of("score_plain"), options).front().verdict, Verdict::kSkipped);
}

TEST(CheckGolden, RunsEveryBackendUnlessBitsAreDemanded) {
  std::vector<Backend> ran;
  for (const Row& row : check_golden(first_golden())) ran.push_back(row.backend);
  EXPECT_EQ(ran, available_backends());
  CheckOptions options;
  options.exact = true;
  const std::vector<Row> rows = check_golden(first_golden(), options);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].backend, Backend::kReference);
}

TEST(CheckPath, MakesARowOfWhatCannotBeReadInAFolder) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "attn_check_path";
  fs::create_directories(folder);
  const std::string name = first_case().name + ".safetensors";
  fs::copy_file(fs::path(ATTN_GOLDEN) / "data" / name, folder / name,
                fs::copy_options::overwrite_existing);
  std::ofstream(folder / "a_broken.safetensors") << "PK\3\4 nothing of the kind";
  CheckOptions options;
  options.backends = {Backend::kReference};
  const std::vector<Row> rows = check_path(folder.string(), options);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].verdict, Verdict::kUnreadable);
  EXPECT_NE(rows[0].reason.find("expected a golden file (safetensors)"), std::string::npos);
  EXPECT_EQ(rows[1].verdict, Verdict::kAgrees);
  EXPECT_NE(error_of([&] { check_path((folder / "a_broken.safetensors").string()); }), "");
  fs::remove_all(folder);
}

TEST(ParseCase, NamesTheCaseAndTheFieldThatIsMissing) {
  const std::string error = error_of([] { parse_case({{"name", "lonely"}, {"module", "x"}}); });
  EXPECT_NE(error.find("lonely"), std::string::npos);
  EXPECT_NE(error.find("dtype"), std::string::npos);
}

}  // namespace
}  // namespace attn::golden
