#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/refusal.h"
#include "weights/formats/pickle.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/zip.h"

namespace attn::formats {
namespace {

StoredTensor tensor(std::string name, ElementType type, std::size_t storage,
                    std::vector<std::uint64_t> sizes) {
  StoredTensor result;
  result.name = std::move(name);
  result.type = type;
  result.storage = storage;
  result.strides = contiguous_strides(sizes);
  result.sizes = std::move(sizes);
  return result;
}

std::string written(const std::vector<StoredTensor>& tensors,
                    const std::vector<std::string_view>& storages) {
  StoredFile file;
  file.tensors = tensors;
  for (const std::string_view bytes : storages) file.storages.emplace_back().size = bytes.size();
  std::string result;
  write_state_dict(file, storages, [&](std::string_view bytes) { result += bytes; });
  return result;
}

TEST(WriteStateDict, ComesBackAsItWas) {
  const std::string_view first = "0123456789abcdefghijklmn", second = "ABCDEFGHIJ";
  StoredTensor view = tensor("a.view", ElementType::kFloat32, 0, {2, 2});
  view.offset = 1;
  view.strides = {1, 3};
  const std::vector<StoredTensor> tensors = {tensor("\xd0\xba.w", ElementType::kFloat32, 0, {2, 3}),
                                             view, tensor("half", ElementType::kBFloat16, 1, {5}),
                                             tensor("none", ElementType::kInt64, 2, {0, 70'000}),
                                             tensor("scalar", ElementType::kFloat8E4M3, 3, {})};
  const std::string file = written(tensors, {first, second, "", "x"});
  const StoredFile read = read_state_dict(file, ZipArchive(file));
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(read.tensors[i].name, tensors[i].name);
    EXPECT_EQ(read.tensors[i].type, tensors[i].type);
    EXPECT_EQ(read.tensors[i].offset, tensors[i].offset);
    EXPECT_EQ(read.tensors[i].sizes, tensors[i].sizes);
    EXPECT_EQ(read.tensors[i].strides, tensors[i].strides);
  }
  EXPECT_EQ(read.tensors[0].storage, read.tensors[1].storage);
  const Storage& storage = read.storages[read.tensors[0].storage];
  EXPECT_EQ(file.substr(storage.begin, storage.size), first);
  EXPECT_EQ(storage.begin % 64, 0u);
  EXPECT_TRUE(storage.crc32);
}

TEST(WriteStateDict, NamesWhatPyTorchNames) {
  const std::string file = written(
      {tensor("f", ElementType::kFloat32, 0, {1}), tensor("u", ElementType::kUInt16, 1, {1})},
      {"abcd", "ab"});
  const ZipArchive archive(file);
  std::vector<std::string> records;
  for (const ZipRecord& record : archive.records()) records.push_back(record.name);
  EXPECT_EQ(records,
            std::vector<std::string>({"archive/data.pkl", "archive/byteorder", "archive/data/0",
                                      "archive/data/1", "archive/version"}));
  const std::string bytes = archive.read(*archive.find("archive/data.pkl"), 10'000);
  const Pickle pickle = read_pickle(bytes);
  std::vector<std::string_view> globals;
  for (const auto index : pickle.globals) globals.push_back(pickle[index].text);
  EXPECT_EQ(globals, std::vector<std::string_view>(
                         {"collections.OrderedDict", "torch._utils._rebuild_tensor_v2",
                          "torch.FloatStorage", "torch._utils._rebuild_tensor_v3",
                          "torch.storage.UntypedStorage", "torch.uint16"}));
}

TEST(WriteStateDict, GivesAStorageOfSeveralTypesNone) {
  // PyTorch takes the type of the first tensor for all others otherwise.
  const std::string file = written(
      {tensor("f", ElementType::kFloat32, 0, {1}), tensor("i", ElementType::kInt32, 0, {1})},
      {"abcd"});
  EXPECT_EQ(file.find("FloatStorage"), std::string::npos);
  EXPECT_NE(file.find("UntypedStorage"), std::string::npos);
  const StoredFile read = read_state_dict(file, ZipArchive(file));
  EXPECT_EQ(read.tensors[0].type, ElementType::kFloat32);
  EXPECT_EQ(read.tensors[1].type, ElementType::kInt32);
  EXPECT_EQ(read.storages.size(), 1u);
}

TEST(WriteStateDict, WritesMoreTensorsThanABatch) {
  std::vector<StoredTensor> tensors;
  for (int i = 0; i < 2001; ++i) {
    tensors.push_back(tensor(std::to_string(i), ElementType::kUInt8, 0, {1}));
  }
  for (const std::size_t count : {0, 1, 1000, 1001, 2000, 2001}) {
    const std::string file = written({tensors.begin(), tensors.begin() + count}, {"x"});
    EXPECT_EQ(read_state_dict(file, ZipArchive(file)).tensors.size(), count);
  }
}

TEST(WriteStateDict, RefusesWhatPyTorchCannotHold) {
  expect_refused([] { written({tensor("w", ElementType::kFloat6E2M3, 0, {4})}, {"abc"}); },
                 "tensor \"w\"", "a dtype that PyTorch has, got float6_e2m3fn");
  expect_refused([] { written({tensor("\xff", ElementType::kUInt8, 0, {1})}, {"a"}); }, "tensor",
                 "a name in UTF-8");
  expect_refused([] { written({tensor("w", ElementType::kUInt8, 0, {2})}, {"a"}); }, "tensor \"w\"",
                 "inside the 1 bytes");
}

}  // namespace
}  // namespace attn::formats
