#include "weights/formats/shard_index.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "weights/formats/format_error.h"

namespace attn::formats {
namespace {

std::string refusal(const std::string& json) {
  try {
    parse_shard_index(json);
    return "accepted";
  } catch (const FormatError& error) {
    return error.what();
  }
}

void expect_refused(const std::string& json, const std::string& part) {
  const std::string text = refusal(json);
  EXPECT_NE(text.find(part), std::string::npos) << json.substr(0, 100) << "\n" << text;
}

TEST(ShardIndex, GivesNamesAndFilesInTheirOrder) {
  const ShardIndex index = parse_shard_index(
      R"({"metadata": {"total_size": 12, "more": [1, {"weight_map": "x"}]},
          "weight_map": {"b": "2.safetensors", "a": "1.safetensors", "c": "2.safetensors"}})");
  EXPECT_EQ(index.files, (std::vector<std::string>{"2.safetensors", "1.safetensors"}));
  EXPECT_EQ(index.tensors,
            (std::vector<std::pair<std::string, std::size_t>>{{"b", 0}, {"a", 1}, {"c", 0}}));
  EXPECT_TRUE(parse_shard_index(R"({"weight_map": {}})").tensors.empty());
}

TEST(ShardIndex, RefusesFilesThatDoNotLieBesideIt) {
  for (const char* file : {"", ".", "..", "../x", "/etc/passwd", "a/b", "a\\\\b", "a\\u0000b"}) {
    expect_refused(R"({"weight_map": {"w": ")" + std::string(file) + "\"}}",
                   "the name of a file beside the index");
  }
}

TEST(ShardIndex, RefusesOtherJson) {
  expect_refused("{}", "\"weight_map\"");
  expect_refused("[]", "\"weight_map\"");
  expect_refused("3", "\"weight_map\"");
  expect_refused(R"({"x": {"weight_map": {"w": "f"}}})", "\"weight_map\"");
  expect_refused(R"({"weight_map": ["f"]})", "weight_map: expected an object, got an array");
  expect_refused(R"({"weight_map": null})", "weight_map: expected an object, got null");
  expect_refused(R"({"weight_map": {"w": 3}})", "\"w\": expected a file name, got a number");
  expect_refused(R"({"weight_map": {"w": {"x": "y"}}})", "expected a file name, got an object");
  expect_refused(R"({"weight_map": {"w": ["y"]}})", "expected a file name, got an array");
  expect_refused(R"({"weight_map": {"w": "f", "w": "g"}})", "\"w\": expected once, got twice");
  expect_refused(R"({"weight_map": {}, "weight_map": {}})", "expected once, got twice");
  expect_refused(R"({"weight_map": {"w": "f"})", "expected JSON");
  expect_refused("{\"weight_map\": {\"\xFF\": \"f\"}}", "expected JSON in UTF-8");
}

TEST(ShardIndex, RefusesDeepNestingWithoutRecursion) {
  expect_refused(R"({"x": )" + std::string(1'000'000, '['), "at most 100 levels");
}

}  // namespace
}  // namespace attn::formats
