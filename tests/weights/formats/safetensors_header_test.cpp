#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weights/formats/format_error.h"
#include "weights/formats/safetensors.h"

namespace attn::formats {
namespace {

constexpr std::string_view kGood = R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})";

/// A header with one tensor, w.
std::string one(std::string_view tensor) { return R"({"w":)" + std::string(tensor) + "}"; }

/// Why the header is refused; empty when it is not.
std::string refusal(std::string_view json, std::uint64_t data_size = 16) {
  try {
    parse_safetensors_header(json, data_size);
    return "";
  } catch (const FormatError& error) {
    return error.what();
  }
}

/// Refused, with a text that has the two parts.
void expect_refused(std::string_view json, std::string_view place, std::string_view rule,
                    std::uint64_t data_size = 16) {
  const std::string text = refusal(json, data_size);
  EXPECT_NE(text, "") << "accepted: " << json;
  EXPECT_NE(text.find(place), std::string::npos) << json << "\n" << text;
  EXPECT_NE(text.find(rule), std::string::npos) << json << "\n" << text;
}

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

TEST(SafetensorsHeader, HoldsNamesTypesShapesPlacesAndMetadata) {
  const SafetensorsHeader header = parse_safetensors_header(
      R"({"__metadata__":{"z":"last","a":"{\"x\": 1}"},"w":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})",
      12);
  const std::vector<std::pair<std::string, std::string>> metadata = {{"z", "last"},
                                                                     {"a", R"({"x": 1})"}};
  EXPECT_EQ(header.metadata, metadata);
  ASSERT_EQ(header.tensors.size(), 1U);
  const SafetensorsEntry& entry = header.tensors[0];
  EXPECT_EQ(entry.name, "w");
  EXPECT_EQ(entry.type, ElementType::kBFloat16);
  EXPECT_EQ(entry.shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(entry.begin, 0U);
  EXPECT_EQ(entry.end, 12U);
}

TEST(SafetensorsHeader, OrdersTensorsByTheirPlaceInTheData) {
  const SafetensorsHeader header = parse_safetensors_header(
      R"({"last":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},"empty":{"dtype":"U8","shape":[0],"data_offsets":[3,3]},)"
      R"("first":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})",
      5);
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "first");
  EXPECT_EQ(header.tensors[1].name, "empty");
  EXPECT_EQ(header.tensors[2].name, "last");
}

TEST(SafetensorsHeader, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(refusal(one(kGood)), "");
  EXPECT_EQ(refusal(one(kGood) + "   "), "") << "padding";
  EXPECT_EQ(refusal(one(kGood) + "\n\t\r"), "") << "padding";
  EXPECT_EQ(refusal("{}", 0), "") << "no tensors";
  EXPECT_EQ(refusal(R"({"__metadata__":{}})", 0), "");
  EXPECT_EQ(refusal(R"({"__metadata__":null})", 0), "");
  EXPECT_EQ(refusal(R"({"":)" + std::string(kGood) + "}"), "") << "an empty name";
  EXPECT_EQ(refusal(R"({"\ud83d\ude00\u0000\/é":)" + std::string(kGood) + "}"), "")
      << "escapes and UTF-8";
  EXPECT_EQ(refusal(one(R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})"), 4), "")
      << "a scalar";
  EXPECT_EQ(refusal(one(R"({"dtype":"F32","shape":[0,3],"data_offsets":[0,0]})"), 0), "")
      << "no elements";
  EXPECT_EQ(
      refusal(one(
          R"({"note":{"a":[1,null,true,-1.5e3,{}]},"note":2,"dtype":"F32","shape":[4],"data_offsets":[0,16]})")),
      "")
      << "fields of later versions";
  EXPECT_EQ(
      refusal(
          R"({"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
          0),
      "")
      << "two tensors without elements";
}

TEST(SafetensorsHeader, KnowsTheSizeOfEveryType) {
  const std::vector<std::pair<std::string, std::uint64_t>> bits = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  for (const auto& [name, size] : bits) {
    // Eight elements take as many bytes as one has bits.
    const std::string json = one(R"({"dtype":")" + name + R"(","shape":[2,4],"data_offsets":[0,)" +
                                 std::to_string(size) + "]}");
    ASSERT_EQ(refusal(json, size), "") << name;
    EXPECT_EQ(safetensors_dtype(parse_safetensors_header(json, size).tensors[0].type), name);
  }
  expect_refused(one(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})"), "\"w\"", "whole bytes",
                 1);
  expect_refused(one(R"({"dtype":"Q4","shape":[4],"data_offsets":[0,16]})"), "\"w\", dtype",
                 "got \"Q4\"");
  expect_refused(one(R"({"dtype":"f32","shape":[4],"data_offsets":[0,16]})"), "\"w\", dtype",
                 "got \"f32\"");
}

TEST(SafetensorsHeader, RefusesTextThatIsNoJsonObject) {
  expect_refused("", "header", "'{'");
  expect_refused("[]", "header", "'{'", 0);
  expect_refused("null", "header", "'{'", 0);
  expect_refused(" " + one(kGood), "header", "'{'");
  expect_refused("\xEF\xBB\xBF" + one(kGood), "header", "'{'");
  for (const std::string& json : {
           one(kGood) + "x",
           one(kGood).substr(0, 20),
           R"({"w":)" + std::string(kGood) + ",}",
           R"({/* no */"w":)" + std::string(kGood) + "}",
           R"({w:)" + std::string(kGood) + "}",
           "{\"\xFF\":" + std::string(kGood) + "}",
           "{\"\xC0\x80\":" + std::string(kGood) + "}",
           "{\"\xED\xA0\x80\":" + std::string(kGood) + "}",
           "{\"a\x01\":" + std::string(kGood) + "}",
           R"({"\ud800":)" + std::string(kGood) + "}",
           one(R"({"dtype":"F32","shape":[04],"data_offsets":[0,16]})"),
           one(R"({"note":1e400,"dtype":"F32","shape":[4],"data_offsets":[0,16]})"),
       }) {
    expect_refused(json, "header", "JSON in UTF-8");
  }
  using namespace std::string_view_literals;
  expect_refused(one(kGood).append("\0garbage"sv), "header", "zero byte");
}

TEST(SafetensorsHeader, RefusesAKeyThatStandsTwice) {
  const std::string good(kGood);
  expect_refused(R"({"w":)" + good + R"(,"w":)" + good + "}", "\"w\"", "twice");
  expect_refused(R"({"w":)" + good + R"(,"\u0077":)" + good + "}", "\"w\"", "twice");
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", "\"__metadata__\"", "twice", 0);
  expect_refused(R"({"__metadata__":{"a":"1","a":"2"}})", "metadata \"a\"", "twice", 0);
  expect_refused(one(R"({"dtype":"F32","dtype":"F32","shape":[4],"data_offsets":[0,16]})"),
                 "\"w\", dtype", "twice");
}

TEST(SafetensorsHeader, RefusesValuesOfTheWrongKind) {
  expect_refused(R"({"__metadata__":[]})", "\"__metadata__\"", "expected an object, got an array",
                 0);
  expect_refused(R"({"__metadata__":{"a":1}})", "metadata \"a\"",
                 "expected a string, got the number 1", 0);
  expect_refused(R"({"__metadata__":{"a":null}})", "metadata \"a\"", "expected a string, got null",
                 0);
  expect_refused(R"({"__metadata__":{"a":{"b":"c"}}})", "metadata \"a\"",
                 "expected a string, got an object", 0);
  expect_refused(one("null"), "\"w\"", "an object with dtype", 0);
  expect_refused(one("1"), "\"w\"", "an object with dtype", 0);
  expect_refused(one(R"(["F32",[4],[0,16]])"), "\"w\"", "got an array");
  expect_refused(one(R"({"dtype":{"F32":null},"shape":[4],"data_offsets":[0,16]})"), "\"w\", dtype",
                 "got an object");
  expect_refused(one(R"({"dtype":1,"shape":[4],"data_offsets":[0,16]})"), "\"w\", dtype",
                 "expected a string");
  for (const char* shape : {"4", "null", "{}", "[-4]", "[4.0]", "[4e0]", "[\"4\"]", "[null]",
                            "[[4]]", "[true]", "[18446744073709551616]"}) {
    expect_refused(
        one(R"({"dtype":"F32","shape":)" + std::string(shape) + R"(,"data_offsets":[0,16]})"),
        "\"w\", shape", "expected an array of sizes");
  }
  for (const char* offsets :
       {"16", "[]", "[0]", "[0,16,16]", "[-0,16]", "[0,16.0]", "[\"0\",16]", "{}"}) {
    expect_refused(
        one(R"({"dtype":"F32","shape":[4],"data_offsets":)" + std::string(offsets) + "}"),
        "\"w\", data_offsets", "expected [begin, end]");
  }
}

TEST(SafetensorsHeader, RefusesATensorWithoutAllItsFields) {
  expect_refused(one(R"({"shape":[4],"data_offsets":[0,16]})"), "\"w\", dtype", "got nothing");
  expect_refused(one(R"({"dtype":"F32","data_offsets":[0,16]})"), "\"w\", shape", "got nothing");
  expect_refused(one(R"({"dtype":"F32","shape":[4]})"), "\"w\", data_offsets", "got nothing");
}

TEST(SafetensorsHeader, RefusesPlacesThatDoNotFillTheData) {
  const std::string a =
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":)";
  EXPECT_EQ(refusal(a + "[4,8]}}", 8), "");
  expect_refused(a + "[5,9]}}", "\"b\"", "at byte 4", 9);
  expect_refused(a + "[3,7]}}", "\"b\"", "at byte 4", 7);
  expect_refused(a + "[0,4]}}", "\"b\"", "at byte 4", 4);
  expect_refused(a + "[8,4]}}", "\"b\"", "begin <= end", 8);
  expect_refused(a + "[4,8]}}", "data", "expected 8 bytes, as the header says, got 9", 9);
  expect_refused(a + "[4,8]}}", "data", "expected 8 bytes, as the header says, got 7", 7);
  expect_refused(one(R"({"dtype":"U8","shape":[4],"data_offsets":[1,5]})"), "\"w\"", "at byte 0",
                 5);
  expect_refused(one(R"({"dtype":"F32","shape":[5],"data_offsets":[0,16]})"), "\"w\"",
                 "expected 20 bytes for F32 [5]");
  expect_refused(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"), "\"w\"",
                 "expected 12 bytes for F32 [3]");
  expect_refused("{}", "data", "expected 0 bytes", 16);
}

TEST(SafetensorsHeader, RefusesSizesThatOverflow) {
  const auto shaped = [](const std::string& shape) {
    return one(R"({"dtype":"F64","shape":)" + shape + R"(,"data_offsets":[0,0]})");
  };
  expect_refused(shaped("[4611686018427387904,4]"), "\"w\"", "below 2^64 bits", 0);
  // 2^58 float64 have 2^64 bits: the count fits, the size wraps to zero.
  expect_refused(shaped("[288230376151711744]"), "\"w\"", "below 2^64 bits", 0);
  // As the Python package: a zero after the overflow does not undo it, one before prevents it.
  expect_refused(shaped("[9223372036854775808,2,0]"), "\"w\"", "below 2^64 bits", 0);
  EXPECT_EQ(refusal(shaped("[0,9223372036854775808,2]"), 0), "");
}

TEST(SafetensorsHeader, RefusesDeepNestingWithoutRecursion) {
  const auto nested = [](std::size_t levels) {
    return one(R"({"note":)" + std::string(levels, '[') + std::string(levels, ']') +
               R"(,"dtype":"F32","shape":[4],"data_offsets":[0,16]})");
  };
  // The header and the tensor are the first two levels of 127.
  EXPECT_EQ(refusal(nested(125)), "");
  expect_refused(nested(126), "header", "levels of nesting");
  expect_refused(nested(1'000'000), "header", "levels of nesting");
  std::string objects = R"({"w":{"note":)";
  for (int i = 0; i < 200'000; ++i) objects += R"({"a":)";
  expect_refused(objects, "header", "levels of nesting");
}

TEST(SafetensorsHeader, LengthFitsTheFileAndTheLimit) {
  EXPECT_EQ(safetensors_header_length(little_endian(64), 72), 64U);
  EXPECT_EQ(safetensors_header_length(little_endian(0x0102), 1000), 0x0102U);
  EXPECT_EQ(
      safetensors_header_length(little_endian(kSafetensorsMaxHeader), kSafetensorsMaxHeader + 8),
      kSafetensorsMaxHeader);
  EXPECT_THROW(safetensors_header_length(little_endian(65), 72), FormatError);
  EXPECT_THROW(safetensors_header_length(little_endian(kSafetensorsMaxHeader + 1), 1ULL << 40),
               FormatError);
  EXPECT_THROW(
      safetensors_header_length(little_endian(std::numeric_limits<std::uint64_t>::max()), 1000),
      FormatError);
  EXPECT_THROW(safetensors_header_length("\1\0\0\0\0\0\0", 7), FormatError);
  EXPECT_THROW(safetensors_header_length("", 0), FormatError);
}

}  // namespace
}  // namespace attn::formats
