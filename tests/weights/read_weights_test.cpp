#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <attn/weights.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/pickle_bytes.h"
#include "support/safetensors_writer.h"

namespace attn {
namespace {

using testing::read_file;
using testing::safetensors_bytes;
using testing::TempFile;
using testing::test_data;

std::string refusal(const std::string& path) {
  try {
    read_weights(path);
    return "";
  } catch (const WeightsError& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return error.what();
  }
}

void expect_refused(const std::string& path, const std::string& part) {
  const std::string text = refusal(path);
  EXPECT_NE(text, "") << "accepted: " << path;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

double total(const at::Tensor& tensor) { return tensor.to(at::kDouble).sum().item<double>(); }

TEST(ReadWeights, ReadsGoodSafetensorsFiles) {
  for (const char* name : {"ok", "empty_metadata", "braces_in_metadata", "escaped_key"}) {
    const NamedTensors tensors =
        read_weights(test_data(std::string("weights/w11_") + name + ".safetensors"));
    ASSERT_EQ(tensors.size(), 1U) << name;
    EXPECT_EQ(tensors[0].first, std::string_view(name) == "escaped_key" ? "W_QKV/x" : "w");
    EXPECT_EQ(tensors[0].second.sizes(), at::IntArrayRef({4}));
    EXPECT_EQ(tensors[0].second.scalar_type(), at::kFloat);
    EXPECT_DOUBLE_EQ(total(tensors[0].second), 2.512044444680214) << name;
  }
  EXPECT_TRUE(read_weights(test_data("weights/w11_only_metadata.safetensors")).empty());
}

TEST(ReadWeights, ReadsScalarsEmptyTensorsAndBfloat16) {
  NamedTensors tensors = read_weights(test_data("weights/w11_scalar_and_zero.safetensors"));
  ASSERT_EQ(tensors.size(), 3U);
  for (const auto& [name, tensor] : tensors) {
    if (name == "s") {
      EXPECT_EQ(tensor.dim(), 0);
      EXPECT_DOUBLE_EQ(total(tensor), 0.19866932928562164);
    } else if (name == "z") {
      EXPECT_EQ(tensor.sizes(), at::IntArrayRef({0, 3}));
    } else {
      EXPECT_EQ(name, "h");
      EXPECT_TRUE(at::equal(tensor, at::tensor({1.0F, 2.0F}).to(at::kBFloat16)));
    }
  }
}

TEST(ReadWeights, OrdersSafetensorsByTheirPlaceInTheData) {
  const NamedTensors tensors = read_weights(test_data("weights/w11_reverse_order.safetensors"));
  EXPECT_EQ(names_of(tensors), (std::vector<std::string>{"a", "b"}));
  EXPECT_DOUBLE_EQ(total(tensors[0].second), 0.7383013516664505);
  EXPECT_DOUBLE_EQ(total(tensors[1].second), 1.7737430930137634);
}

TEST(ReadWeights, RefusesBrokenSafetensorsFilesAndNamesTheRule) {
  expect_refused(test_data("weights/w11_begin_gt_end.safetensors"), "begin <= end");
  expect_refused(test_data("weights/w11_bytes_larger_than_shape.safetensors"), "bytes for F32");
  expect_refused(test_data("weights/w11_past_eof.safetensors"), "as the header says");
  expect_refused(test_data("weights/w11_shape_larger_than_bytes.safetensors"), "bytes for F32");
  expect_refused(test_data("weights/w11_unknown_dtype.safetensors"), "\"Q4\"");
}

TEST(ReadWeights, RefusesATruncatedSafetensorsFileAtEveryLength) {
  const std::string whole = read_file(test_data("weights/w11_ok.safetensors"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const TempFile file(whole.substr(0, length));
    EXPECT_NE(refusal(file.path()), "") << length << " bytes";
  }
}

TEST(ReadWeights, HasTheTypesOfSafetensorsThatLibTorchHas) {
  const std::vector<std::pair<std::string, at::ScalarType>> types = {
      {"BOOL", at::kBool},
      {"U8", at::kByte},
      {"I8", at::kChar},
      {"F8_E5M2", at::kFloat8_e5m2},
      {"F8_E4M3", at::kFloat8_e4m3fn},
      {"F8_E8M0", at::kFloat8_e8m0fnu},
      {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
      {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
      {"I16", at::kShort},
      {"U16", at::kUInt16},
      {"F16", at::kHalf},
      {"BF16", at::kBFloat16},
      {"I32", at::kInt},
      {"U32", at::kUInt32},
      {"F32", at::kFloat},
      {"C64", at::kComplexFloat},
      {"F64", at::kDouble},
      {"I64", at::kLong},
      {"U64", at::kUInt64}};
  for (const auto& [name, type] : types) {
    const std::string bytes(2 * c10::elementSize(type), '\1');
    const TempFile file(safetensors_bytes(R"({"w":{"dtype":")" + name +
                                              R"(","shape":[2],"data_offsets":[0,)" +
                                              std::to_string(bytes.size()) + "]}}",
                                          bytes));
    const at::Tensor tensor = read_weights(file.path()).at(0).second;
    EXPECT_EQ(tensor.scalar_type(), type) << name;
    EXPECT_EQ(std::string(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()),
              bytes)
        << name;
  }
  // Pairs of four-bit numbers are one element in LibTorch.
  const TempFile pairs(
      safetensors_bytes(R"({"w":{"dtype":"F4","shape":[3,4],"data_offsets":[0,6]}})", "abcdef"));
  const at::Tensor tensor = read_weights(pairs.path()).at(0).second;
  EXPECT_EQ(tensor.scalar_type(), at::kFloat4_e2m1fn_x2);
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({3, 2}));
  const TempFile odd(
      safetensors_bytes(R"({"w":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", "abc"));
  expect_refused(odd.path(), "even last size");
  const TempFile six(
      safetensors_bytes(R"({"w":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})", "abc"));
  expect_refused(six.path(), "got float6_e2m3fn");
}

TEST(ReadWeights, ReadsAnyNonzeroByteAsTrue) {
  const TempFile file(safetensors_bytes(
      R"({"w":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", {"\0\2\xFF", 3}));
  const at::Tensor tensor = read_weights(file.path()).at(0).second;
  EXPECT_EQ(std::string(static_cast<const char*>(tensor.const_data_ptr()), 3),
            std::string("\0\1\1", 3));
}

TEST(ReadWeights, ChangesNoBytesThatATensorOfAnotherTypeShares) {
  namespace pickled = testing::pickled;
  const auto view = [](const char* dtype, int64_t size) {
    const std::string storage =
        pickled::storage_id({pickled::text("storage"), pickled::global("torch", "UntypedStorage"),
                             pickled::text("0"), pickled::text("cpu"), pickled::integer(4)});
    return pickled::call(
        pickled::global("torch._utils", "_rebuild_tensor_v3"),
        {storage, pickled::integer(0), pickled::integers({size}), pickled::integers({1}),
         pickled::boolean(false), pickled::ordered_dict(), pickled::global("torch", dtype)});
  };
  const std::string value = pickled::dict(
      {{pickled::text("f"), view("float32", 1)}, {pickled::text("b"), view("bool", 4)}});
  const TempFile one(pickled::archive(value, {{"data/0", std::string("\0\0\x80\x3f", 4)}}));
  expect_refused(one.path(), "bools of 0 and 1 in memory that it shares");
  const TempFile tiny(pickled::archive(value, {{"data/0", std::string("\1\0\0\0", 4)}}));
  EXPECT_EQ(read_weights(tiny.path()).size(), 2U);
}

TEST(ReadWeights, RefusesAPathWithAZeroByte) {
  // The system would open the file that is named before it.
  const TempFile file(safetensors_bytes("{}", ""));
  const std::string path = file.path() + '\0' + ".other";
  EXPECT_THROW(read_weights(path), WeightsError);
  EXPECT_THROW(save_weights({{"w", at::tensor(1.0F)}}, file.path() + '\0' + ".pt"), c10::Error);
}

TEST(ReadWeights, RefusesSizesThatLibTorchCannotHold) {
  // Both have no elements and are sound by the format.
  const TempFile large(safetensors_bytes(
      R"({"w":{"dtype":"F32","shape":[0,9223372036854775808],"data_offsets":[0,0]}})", ""));
  expect_refused(large.path(), "below 2^63");
  const TempFile product(safetensors_bytes(
      R"({"w":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", ""));
  expect_refused(product.path(), "below 2^63");
}

TEST(ReadWeights, GivesMetadataInItsOrder) {
  const TempFile file(safetensors_bytes(R"({"__metadata__":{"torch":"2","case":"{}"}})", ""));
  const std::vector<std::pair<std::string, std::string>> metadata = {{"torch", "2"},
                                                                     {"case", "{}"}};
  EXPECT_EQ(read_weight_file(file.path()).metadata, metadata);
}

TEST(ReadWeights, ReadsAScriptedArchiveInTheOrderOfStateDict) {
  const NamedTensors tensors = read_weights(test_data("weights/nested.ts"));
  EXPECT_EQ(names_of(tensors), (std::vector<std::string>{"scale", "offset", "child.steps",
                                                         "child.map.weight", "tied.weight"}));
  EXPECT_TRUE(at::equal(tensors[0].second, at::tensor({0.5F, 0.25F, 0.125F}).to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(tensors[1].second, at::arange(3, at::kFloat)));
  EXPECT_EQ(tensors[2].second.scalar_type(), at::kLong);
  EXPECT_EQ(tensors[2].second.item<int64_t>(), 7);
  EXPECT_TRUE(at::equal(tensors[3].second, at::arange(6, at::kFloat).view({3, 2})));
  EXPECT_TRUE(at::equal(tensors[4].second, tensors[3].second));
  for (const auto& [name, tensor] : tensors) EXPECT_FALSE(tensor.requires_grad()) << name;
}

TEST(ReadWeights, ReadsATracedArchive) {
  const NamedTensors tensors = read_weights(test_data("weights/traced.ts"));
  EXPECT_EQ(names_of(tensors),
            (std::vector<std::string>{"W_QKV.weight", "W_QKV.bias", "W_O.weight", "W_O.bias"}));
  EXPECT_TRUE(at::equal(tensors[0].second, at::arange(192, at::kFloat).view({24, 8})));
  EXPECT_TRUE(at::equal(tensors[3].second, at::arange(3000, 3008, at::kFloat)));
}

TEST(ReadWeights, RefusesAFrozenArchiveAndSaysSo) {
  expect_refused(test_data("weights/frozen.ts"), "frozen TorchScript archive");
}

TEST(ReadWeights, TellsAModuleWithoutWeightsFromAFrozenOne) {
  EXPECT_TRUE(read_weights(test_data("weights/no_parameters.ts")).empty());
}

TEST(ReadWeights, GoesByContentNotBySuffix) {
  const TempFile archive(read_file(test_data("weights/traced.ts")), ".safetensors");
  EXPECT_EQ(read_weights(archive.path()).size(), 4U);
  const TempFile safetensors(read_file(test_data("weights/w11_ok.safetensors")), ".ts");
  EXPECT_EQ(read_weights(safetensors.path()).size(), 1U);
}

TEST(ReadWeights, SaysWhatAFileLooksLike) {
  expect_refused(test_data("weights/w15_html.pt"), "HTML");
  expect_refused(test_data("weights/w15_lfs_pointer.pt"), "Git LFS pointer");
  expect_refused(test_data("weights/w15_truncated_half.pt"), "truncated");
  expect_refused(test_data("weights/w15_truncated_tail.pt"), "truncated");
  expect_refused(test_data("weights"), "a directory");
  expect_refused(test_data("weights/absent.ts"), "no file of this name");
  expect_refused(std::string(300, 'x'), "cannot be reached");
  expect_refused("/dev/null", "a device");
  const TempFile empty("");
  expect_refused(empty.path(), "an empty file");
  const TempFile tar(std::string(257, 'a') + "ustar");
  expect_refused(tar.path(), "PyTorch 0.1.9");
  const TempFile text("hello\tworld");
  expect_refused(text.path(), "\"hello\\x09world\"");
}

TEST(ReadWeights, RefusesATruncatedArchive) {
  const std::string whole = read_file(test_data("weights/traced.ts"));
  for (const std::size_t length : {4UL, whole.size() / 2, whole.size() - 30}) {
    const TempFile file(whole.substr(0, length));
    expect_refused(file.path(), "truncated");
  }
}

TEST(ReadWeights, GivesTensorsThatTrainEvenInsideInferenceMode) {
  const c10::InferenceMode inference;
  for (const char* name :
       {"weights/traced.ts", "weights/w11_ok.safetensors", "weights/w03_legacy.pt"}) {
    EXPECT_FALSE(read_weights(test_data(name)).at(0).second.is_inference()) << name;
  }
  EXPECT_TRUE(c10::InferenceMode::is_enabled());
}

TEST(ReadWeights, KeepsTheTensorsOfAFileThatIsDeletedOrReplaced) {
  const std::string bytes = read_file(test_data("weights/w11_ok.safetensors"));
  NamedTensors tensors;
  {
    const TempFile file(bytes);
    tensors = read_weights(file.path());
    const TempFile other(std::string(bytes.size(), 'x'));
    std::filesystem::rename(other.path(), file.path());
  }
  EXPECT_DOUBLE_EQ(total(tensors.at(0).second), 2.512044444680214);
}

TEST(ReadWeights, WritesToATensorChangeNeitherTheFileNorAnotherReader) {
  for (const char* name : {"weights/w11_ok.safetensors", "weights/w03_legacy.pt"}) {
    const TempFile file(read_file(test_data(name)));
    at::Tensor tensor = read_weights(file.path()).at(0).second;
    const at::Tensor before = tensor.clone();
    const at::Tensor other = read_weights(file.path()).at(0).second;
    tensor.zero_();
    EXPECT_TRUE(at::equal(other, before)) << name;
    EXPECT_EQ(read_file(file.path()), read_file(test_data(name))) << name;
  }
}

TEST(ReadWeights, ReadsOnlyWhatIsUnderThePrefix) {
  const TempFile file(safetensors_bytes({{"a.w", at::arange(3)}, {"b.w", at::arange(4)}}));
  const WeightFile read = read_weight_file(file.path(), LoadOptions().prefix("b."));
  EXPECT_EQ(names_of(read.tensors), std::vector<std::string>{"w"});
  EXPECT_EQ(read.tensors[0].second.numel(), 4);
  ASSERT_EQ(read.skipped.size(), 1U);
  EXPECT_EQ(read.skipped[0].name, "a.w");
  EXPECT_EQ(read.skipped[0].what, "int64 [3]");
  EXPECT_TRUE(read.skipped[0].is_tensor);
}

TEST(ReadWeights, CopiesTensorsThatAreNotAlignedForTheirType) {
  // One byte before a float32: the format allows it.
  const TempFile file(safetensors_bytes(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                        R"("w":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                                        std::string("\1\0\0\x80\x3F", 5)));
  const at::Tensor tensor = read_weights(file.path()).at(1).second;
  EXPECT_EQ(tensor.item<float>(), 1.0F);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % sizeof(float), 0U);
}

TEST(ReadWeights, ReadsTracedAndScriptedArchivesOfTheDocumentedModules) {
  const char* shared = std::getenv("ATTN_SHARED");
  if (!shared) GTEST_SKIP() << "the archives of the documented modules: ATTN_SHARED is not set";
  const std::vector<std::pair<std::string, std::vector<std::pair<std::string, double>>>> archives =
      {{"w02_scripted_001.ts",
        {{"values.weight", 0.17595408856868744},
         {"keys.weight", 0.8275547102093697},
         {"queries.weight", 1.7088081669062376},
         {"fc_out.weight", 0.35489754244918004}}},
       {"w02_traced_002.ts",
        {{"queryEncoder.weight", 1.4268155936151743},
         {"keyEncoder.weight", 0.2713379757478833},
         {"valueEncoder.weight", 0.007068591192364693},
         {"MHA.project_out.weight", 0.35489754244918004}}},
       {"w02_traced_004.ts",
        {{"W_QKV.weight", 1.564715308137238},
         {"W_QKV.bias", 0.5611001402139664},
         {"W_O.weight", 0.007068591192364693},
         {"W_O.bias", 0.044677406549453735}}},
       {"w14_traced_eval_000.ts",
        {{"Q.weight", 1.4268155936151743},
         {"K.weight", 0.2713379757478833},
         {"V.weight", 0.007068591192364693},
         {"Wo.weight", 0.35489754244918004}}}};
  for (const auto& [file, expected] : archives) {
    const NamedTensors tensors = read_weights(std::string(shared) + "/cases/files/" + file);
    ASSERT_GE(tensors.size(), expected.size()) << file;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(tensors[i].first, expected[i].first);
      // A sum of at most 192 numbers below 1 in float64, in another order.
      EXPECT_NEAR(total(tensors[i].second), expected[i].second, 192 * 192 * 1.2e-16)
          << file << " " << tensors[i].first;
    }
  }
  const NamedTensors train =
      read_weights(std::string(shared) + "/cases/files/w14_traced_train_000.ts");
  const NamedTensors eval =
      read_weights(std::string(shared) + "/cases/files/w14_traced_eval_000.ts");
  EXPECT_EQ(names_of(train), names_of(eval));
  for (std::size_t i = 0; i < eval.size(); ++i)
    EXPECT_TRUE(at::equal(train[i].second, eval[i].second));
}

}  // namespace
}  // namespace attn
