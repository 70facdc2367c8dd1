#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <attn/weights.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "support/files.h"
#include "weights/projections.h"

namespace attn {
namespace {

using testing::expect_equal;
using testing::fitting;
using testing::Projections;
using testing::read_file;
using testing::state_of;
using testing::TempFile;
using testing::test_data;

const std::vector<std::string> kSuffixes = {".safetensors", ".pt", ".ts", ".npz"};

/// Equal in name, shape, dtype and every bit.
void expect_same(const NamedTensors& got, const NamedTensors& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const at::Tensor a = got[i].second.contiguous(), b = expected[i].second.contiguous();
    EXPECT_EQ(got[i].first, expected[i].first) << what;
    EXPECT_EQ(a.sizes(), b.sizes()) << what << ' ' << got[i].first;
    ASSERT_EQ(a.scalar_type(), b.scalar_type()) << what << ' ' << got[i].first;
    EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), b.nbytes()), 0)
        << what << ' ' << got[i].first;
  }
}

NamedTensors round_trip(const NamedTensors& tensors, const std::string& suffix) {
  const TempFile file("", suffix);
  save_weights(tensors, file.path());
  return read_weights(file.path());
}

std::string refusal(const NamedTensors& tensors, const std::string& path,
                    const SaveOptions& options = {}) {
  try {
    save_weights(tensors, path, options);
    return "saved";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

void expect_refused(const NamedTensors& tensors, const std::string& suffix,
                    const std::string& part) {
  const TempFile old("old", suffix);
  const std::string text = refusal(tensors, old.path());
  EXPECT_NE(text.find(part), std::string::npos) << suffix << ": " << text;
  EXPECT_EQ(read_file(old.path()), "old") << "the old file stays";
}

TEST(SaveWeights, KeepsEveryBitOfEveryDtypeThatAFormatHas) {
  using at::ScalarType;
  const std::vector<ScalarType> numpy = {
      at::kBool,  at::kByte,   at::kChar,   at::kShort,  at::kInt,    at::kLong,        at::kHalf,
      at::kFloat, at::kDouble, at::kUInt16, at::kUInt32, at::kUInt64, at::kComplexFloat};
  std::vector<ScalarType> all = numpy;
  for (const ScalarType type : {at::kBFloat16, at::kFloat8_e5m2, at::kFloat8_e4m3fn,
                                at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu})
    all.push_back(type);
  for (const std::string& suffix : kSuffixes) {
    for (const ScalarType type : suffix == ".npz" ? numpy : all) {
      const auto element = static_cast<int64_t>(c10::elementSize(type));
      const at::Tensor bytes = at::randint(type == at::kBool ? 2 : 256, {6 * element}, at::kByte);
      const NamedTensors tensors = {{"w", bytes.view(type).view({2, 3})},
                                    {"empty", at::empty({0, 3}, type)},
                                    {"scalar", bytes.view(type)[0]}};
      expect_same(round_trip(tensors, suffix), tensors, suffix + ' ' + std::string(toString(type)));
    }
  }
}

TEST(SaveWeights, WritesWhatIsNotContiguous) {
  const at::Tensor base = at::arange(24, at::kFloat).view({4, 6});
  const NamedTensors tensors = {{"transposed", base.t()},
                                {"sliced", base.slice(1, 1, 6, 2)},
                                {"expanded", base[0].expand({3, 6})},
                                {"offset", base[2]}};
  for (const std::string& suffix : kSuffixes)
    expect_same(round_trip(tensors, suffix), tensors, suffix);
}

TEST(SaveWeights, WritesTheNumbersOfConjugateAndNegativeViews) {
  const at::Tensor numbers =
      at::arange(6, at::kFloat).to(at::kComplexFloat).mul(c10::complex<float>(1, 2));
  const NamedTensors views = {{"c", numbers.conj()}, {"n", at::imag(numbers.conj())}};
  for (const char* suffix : {".pt", ".ts"}) {
    const TempFile file("", suffix);
    save_weights(views, file.path());
    for (const auto& [name, tensor] : read_weights(file.path())) {
      const at::Tensor& view = views.at(name == "c" ? 0 : 1).second;
      EXPECT_TRUE(at::equal(tensor, view.resolve_conj().resolve_neg())) << name << suffix;
    }
  }
}

TEST(SaveWeights, KeepsSharedMemoryAndStridesInAStateDict) {
  const at::Tensor base = at::arange(24, at::kFloat).view({4, 6});
  const NamedTensors read =
      round_trip({{"base", base}, {"tied", base}, {"row", base[1]}, {"t", base.t()}}, ".pt");
  read[0].second.fill_(7);
  for (const auto& [name, tensor] : read)
    EXPECT_TRUE(at::equal(tensor, at::zeros_like(tensor).fill_(7))) << name;
  EXPECT_EQ(read[3].second.strides(), at::IntArrayRef({1, 6}));
}

TEST(SaveWeights, MakesCopiesOfSharedTensorsInSafetensors) {
  const at::Tensor base = at::arange(4, at::kFloat);
  const NamedTensors read = round_trip({{"a", base}, {"b", base}}, ".safetensors");
  read[0].second.zero_();
  EXPECT_TRUE(at::equal(read[1].second, base));
}

TEST(SaveWeights, WritesOnlyWhatIsUsedOfALargeStorage) {
  const at::Tensor large = at::zeros({1 << 20});
  for (const std::string suffix : {".pt", ".safetensors"}) {
    const TempFile file("", suffix);
    save_weights({{"row", large.narrow(0, 1000, 8)}}, file.path());
    EXPECT_LT(std::filesystem::file_size(file.path()), 5000U) << suffix;
  }
}

TEST(SaveWeights, WritesAModuleInTheOrderOfStateDict) {
  struct Model : torch::nn::Module {
    Model() {
      norm = register_module("norm", torch::nn::BatchNorm1d(2));
      register_parameter("late", at::ones({1}));
    }
    torch::nn::BatchNorm1d norm = nullptr;
  } model;
  for (const std::string suffix : {".pt", ".npz", ".ts"}) {
    const TempFile file("", suffix);
    save_weights(model, file.path());
    std::vector<std::string> names;
    for (const auto& [name, tensor] : read_weights(file.path())) names.push_back(name);
    EXPECT_EQ(names,
              (std::vector<std::string>{"late", "norm.weight", "norm.bias", "norm.running_mean",
                                        "norm.running_var", "norm.num_batches_tracked"}))
        << suffix;
  }
}

TEST(SaveWeights, FillsTheModuleThatItCameFrom) {
  for (const std::string& suffix : kSuffixes) {
    Projections saved, loaded;
    const TempFile file("", suffix);
    save_weights(saved, file.path());
    EXPECT_EQ(load_weights(loaded, file.path()).loaded.size(), 4U);
    expect_equal(state_of(*loaded), state_of(*saved));
  }
}

TEST(SaveWeights, ReplacesTheFileThatItWasReadFrom) {
  for (const char* name : {"weights/w11_ok.safetensors", "weights/w01_ordereddict.pt"}) {
    const TempFile file(read_file(test_data(name)), std::filesystem::path(name).extension());
    const NamedTensors tensors = read_weights(file.path());
    save_weights(tensors, file.path());
    expect_same(read_weights(file.path()), read_weights(test_data(name)), name);
  }
}

TEST(SaveWeights, TakesTheFormatFromTheOptionsBeforeTheSuffix) {
  const TempFile file("", ".pt");
  save_weights(fitting(), file.path(), SaveOptions().format(WeightFormat::kSafetensors));
  EXPECT_EQ(read_weight_file(file.path()).format, "safetensors");
}

TEST(SaveWeights, WritesMetadataAndASingleArray) {
  const TempFile file("", ".safetensors");
  save_weights(fitting(), file.path(), SaveOptions().metadata({{"format", "pt"}}));
  EXPECT_EQ(read_weight_file(file.path()).metadata.at(0).second, "pt");
  const at::Tensor array = at::arange(6).view({2, 3});
  expect_same(round_trip({{"any", array}}, ".npy"), {{"", array}}, "npy");
}

TEST(SaveWeights, ReportsProgressUpToTheEnd) {
  const TempFile file("", ".safetensors");
  uint64_t last = 0, total = 0;
  const auto progress = [&](uint64_t done, uint64_t all) {
    EXPECT_LE(last, done);
    last = done;
    total = all;
  };
  save_weights({{"w", at::zeros({10 << 20})}}, file.path(), SaveOptions().progress(progress));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, 40U << 20);
}

TEST(SaveWeights, RefusesWhatAFormatCannotHoldAndKeepsTheOldFile) {
  const at::Tensor one = at::ones({1});
  for (const std::string& suffix : kSuffixes) {
    expect_refused({{"w", one}, {"w", one}}, suffix, "\"w\" twice");
    expect_refused({{"w", at::Tensor()}}, suffix, "dense tensors");
    expect_refused({{"w", one.to_sparse()}}, suffix, "\"w\"");
    expect_refused({{"w", one.to(at::kMeta)}}, suffix, "\"w\"");
    expect_refused({{"\xFF", one}}, suffix, "tensors: ");
  }
  expect_refused({{"__metadata__", one}}, ".safetensors", "\"__metadata__\"");
  expect_refused({{"w", at::ones({1}, at::kComplexDouble)}}, ".safetensors", "complex128");
  expect_refused({{"w", at::ones({1}, at::kBFloat16)}}, ".npz", "bfloat16");
  expect_refused({{"a", one}, {"b", one}}, ".npy", "expected one for .npy, got 2");
  for (const char* name : {"", ".", "a..b", "a.", ".a", "a b", "a-b"})
    expect_refused({{name, one}}, ".ts", "for TorchScript");
  expect_refused({{"a", one}, {"a.b", one}}, ".ts", "\"a.b\"");
  expect_refused({{"a.b", one}, {"a", one}}, ".ts", "\"a\"");
  expect_refused({{"training", one}}, ".ts", "\"training\"");
  expect_refused({{"w", one}}, ".txt", "expected the suffix .safetensors");
}

}  // namespace
}  // namespace attn
