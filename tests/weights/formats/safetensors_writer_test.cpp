#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "weights/formats/format_error.h"
#include "weights/formats/safetensors.h"

namespace attn::formats {
namespace {

struct Source {
  std::string name;
  ElementType type;
  std::vector<std::uint64_t> sizes;
  std::string bytes;
};

std::string write(const std::vector<Source>& sources,
                  std::vector<std::pair<std::string, std::string>> metadata = {}) {
  StoredFile file;
  file.metadata = std::move(metadata);
  std::vector<std::string_view> bytes;
  for (const Source& source : sources) {
    StoredTensor& tensor = file.tensors.emplace_back();
    tensor.name = source.name;
    tensor.type = source.type;
    tensor.sizes = source.sizes;
    tensor.strides = contiguous_strides(source.sizes);
    tensor.storage = file.storages.size();
    file.storages.emplace_back().size = source.bytes.size();
    bytes.emplace_back(source.bytes);
  }
  std::string written;
  write_safetensors(file, bytes, [&](std::string_view piece) { written += piece; });
  return written;
}

TEST(WriteSafetensors, WritesTheBytesOfTheFormat) {
  // 8 bytes of length, JSON, spaces up to a multiple of 64, the data.
  const std::string json = R"({"w":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}})";
  ASSERT_LT(json.size(), 56U);
  EXPECT_EQ(
      write({{"w", ElementType::kInt16, {2}, "abcd"}}),
      std::string("\x38\0\0\0\0\0\0\0", 8) + json + std::string(56 - json.size(), ' ') + "abcd");
}

TEST(WriteSafetensors, AlignsEveryTensorForItsTypeAndKeepsTheOrderOtherwise) {
  const std::string file = write({{"byte", ElementType::kUInt8, {3}, "abc"},
                                  {"a", ElementType::kFloat32, {1}, "0123"},
                                  {"b", ElementType::kFloat64, {}, "01234567"},
                                  {"c", ElementType::kFloat32, {1}, "4567"}});
  const StoredFile read = read_safetensors(file);
  std::vector<std::string> names;
  for (const StoredTensor& tensor : read.tensors) {
    names.push_back(tensor.name);
    EXPECT_EQ(read.storages[tensor.storage].begin % (bits_of(tensor.type) / 8), 0U) << tensor.name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"b", "a", "c", "byte"}));
  EXPECT_EQ(file.substr(read.storages[0].begin), "0123456701234567abc");
}

TEST(WriteSafetensors, EscapesNamesAndKeepsMetadata) {
  const std::string name = "a \"quoted\"\\\n\xE2\x82\xAC";
  const std::string file =
      write({{name, ElementType::kBool, {0}, ""}}, {{"format", "pt"}, {"k\"", "{}"}});
  const StoredFile read = read_safetensors(file);
  EXPECT_EQ(read.tensors.at(0).name, name);
  EXPECT_EQ(read.metadata,
            (std::vector<std::pair<std::string, std::string>>{{"format", "pt"}, {"k\"", "{}"}}));
}

TEST(WriteSafetensors, RefusesWhatTheFormatCannotHold) {
  EXPECT_THROW(write({{"w", ElementType::kComplex128, {1}, std::string(16, 'x')}}), FormatError);
  EXPECT_THROW(write({{"\xFF", ElementType::kBool, {1}, "x"}}), FormatError);
}

}  // namespace
}  // namespace attn::formats
