#include <ATen/ops/equal.h>
#include <attn/weights.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "support/zip_bytes.h"
#include "weights/projections.h"

namespace attn {
namespace {

using testing::expect_equal;
using testing::fitting;
using testing::Projections;
using testing::state_of;

class Shards : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "attn_shards_" + std::to_string(getpid()) + "/";
    std::filesystem::create_directory(folder_);
    const NamedTensors all = fitting();
    save_weights({all[0], all[1]}, folder_ + "model-00001-of-00002.safetensors");
    save_weights({all[2], all[3]}, folder_ + "model-00002-of-00002.safetensors");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string index(const std::string& map) const {
    const std::string path = folder_ + "model.safetensors.index.json";
    std::ofstream(path) << R"({"metadata": {"total_size": 1184}, "weight_map": {)" << map << "}}";
    return path;
  }
  std::string refusal(const std::string& map) const {
    try {
      read_weights(index(map));
      return "read";
    } catch (const WeightsError& error) {
      return error.what();
    }
  }

  std::string folder_;
};

constexpr const char* kWhole = R"("W_O.bias": "model-00002-of-00002.safetensors",
    "W_O.weight": "model-00002-of-00002.safetensors",
    "W_QKV.bias": "model-00001-of-00002.safetensors",
    "W_QKV.weight": "model-00001-of-00002.safetensors")";

TEST_F(Shards, AreReadTogetherFromTheirIndex) {
  Projections module;
  EXPECT_EQ(load_weights(module, index(kWhole)).loaded.size(), 4U);
  expect_equal(state_of(*module), fitting());
  EXPECT_EQ(read_weight_file(index(kWhole)).format, "sharded safetensors");
}

TEST_F(Shards, GiveOnlyWhatTheIndexNames) {
  const WeightFile file =
      read_weight_file(index(R"("W_O.bias": "model-00002-of-00002.safetensors")"));
  ASSERT_EQ(file.tensors.size(), 1U);
  EXPECT_EQ(file.tensors[0].first, "W_O.bias");
  ASSERT_EQ(file.skipped.size(), 1U);
  EXPECT_EQ(file.skipped[0].name, "W_O.weight");
}

TEST_F(Shards, MustHaveWhatTheIndexNames) {
  const std::string text = refusal(R"("W_O.bias": "model-00001-of-00002.safetensors")");
  EXPECT_NE(text.find("without the tensor \"W_O.bias\""), std::string::npos) << text;
  EXPECT_NE(text.find("model-00001-of-00002.safetensors"), std::string::npos) << text;
}

TEST_F(Shards, MustLieBesideTheIndexAndBeNoIndexThemselves) {
  EXPECT_NE(refusal(R"("w": "../model.safetensors")").find("beside the index"), std::string::npos);
  EXPECT_NE(refusal(R"("w": "absent.safetensors")").find("no file of this name"),
            std::string::npos);
  EXPECT_NE(refusal(R"("w": "model.safetensors.index.json")").find("another kind"),
            std::string::npos);
}

TEST_F(Shards, MayNotInflateTogetherToMoreThanTheLimit) {
  std::string map;
  for (int i = 0; i < 16; ++i) {
    // What is refused for its size is not inflated.
    const std::string header = "\x93NUMPY\1" + std::string(1, '\0') + testing::number(59, 2) +
                               "{'descr':'|u1','fortran_order':False,'shape':(63999931,),}\n";
    ASSERT_EQ(header.size(), 10U + 59U);
    // One stored block of deflate, of which nobody reads more than the header.
    const std::string block = header + std::string(63'000, 'x');
    const std::string stored = '\0' + testing::number(block.size(), 2) +
                               testing::number(~block.size() & 0xFFFF, 2) + block;
    testing::ZipPart part = testing::zip_part("w" + std::to_string(i) + ".npy", stored, 0);
    part.both([](auto& fields) { fields.method = 8, fields.size = 64'000'000; });
    const std::string name = std::to_string(i) + ".npz";
    std::ofstream(folder_ + name, std::ios::binary) << testing::zip_bytes({part});
    map += (i ? ", \"w" : "\"w") + std::to_string(i) + "\": \"" + name + '"';
  }
  const std::string text = refusal(map);
  EXPECT_NE(text.find("inflate to more than 1000000000 bytes together"), std::string::npos) << text;
}

}  // namespace
}  // namespace attn
