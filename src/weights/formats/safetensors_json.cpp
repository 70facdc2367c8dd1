#include "weights/formats/safetensors_json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "weights/formats/format_error.h"

namespace attn::formats {
namespace {

using nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";

/// Fields of a tensor; the format ignores others.
enum Field : std::size_t { kDtype, kShape, kOffsets, kUnknown };
constexpr std::array<std::string_view, 3> kFieldNames = {"dtype", "shape", "data_offsets"};
constexpr std::array<std::string_view, 3> kFieldValues = {"a string", "an array of sizes",
                                                          "[begin, end]"};

/// Builds the header from the parser's events: no tree, no recursion, whatever the text.
class Builder final : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader header;

  bool null() override {
    // As in the Python package, no metadata at all.
    return (inside_ == Inside::kHeader && key_ == kMetadataKey) || other("null");
  }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override { return other("a negative number"); }
  bool number_float(number_float_t, const string_t& digits) override {
    return other("the number " + in_quotes(digits));
  }
  bool binary(binary_t&) override { return other("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (inside_ == Inside::kShape) {
      tensor().shape.push_back(value);
    } else if (inside_ == Inside::kOffsets && offsets_ < 2) {
      (offsets_++ == 0 ? tensor().begin : tensor().end) = value;
    } else {
      return other("the number " + std::to_string(value));
    }
    return true;
  }

  bool string(string_t& value) override {
    if (inside_ == Inside::kMetadata) {
      header.metadata.emplace_back(key_, std::move(value));
      return true;
    }
    if (inside_ != Inside::kTensor || field_ != kDtype)
      return other("the string " + in_quotes(value));
    const auto type = safetensors_type(value);
    if (!type) refuse("a type of safetensors", in_quotes(value));
    tensor().type = *type;
    return true;
  }

  bool start_object(std::size_t) override {
    if (inside_ == Inside::kNothing) {
      inside_ = Inside::kHeader;
    } else if (inside_ != Inside::kHeader) {
      return start_ignored("an object");
    } else if (key_ == kMetadataKey) {
      inside_ = Inside::kMetadata;
    } else {
      inside_ = Inside::kTensor;
      field_ = kUnknown;
      seen_ = {};
      header.tensors.emplace_back().name = key_;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (inside_ != Inside::kTensor || (field_ != kShape && field_ != kOffsets))
      return start_ignored("an array");
    inside_ = field_ == kShape ? Inside::kShape : Inside::kOffsets;
    offsets_ = 0;
    return true;
  }

  bool key(string_t& key) override {
    bool fresh = true;
    if (inside_ == Inside::kHeader) fresh = names_.insert(key_ = key).second;
    if (inside_ == Inside::kMetadata) fresh = metadata_keys_.insert(key_ = key).second;
    if (inside_ == Inside::kTensor) {
      field_ = static_cast<Field>(std::ranges::find(kFieldNames, key) - kFieldNames.begin());
      fresh = field_ == kUnknown || !std::exchange(seen_[field_], true);
    }
    if (!fresh) throw FormatError(place() + ": expected once, got twice");
    return true;
  }

  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    throw FormatError("header: expected JSON in UTF-8, got something else at its byte " +
                      std::to_string(position));
  }

 private:
  enum class Inside { kNothing, kHeader, kMetadata, kTensor, kShape, kOffsets, kIgnored };

  SafetensorsEntry& tensor() { return header.tensors.back(); }

  /// A value that has no place of its own: fine in an ignored field, an error elsewhere.
  bool other(const std::string& got) const {
    if (inside_ == Inside::kIgnored || (inside_ == Inside::kTensor && field_ == kUnknown))
      return true;
    if (inside_ == Inside::kMetadata) refuse("a string", got);
    if (inside_ == Inside::kHeader)
      refuse(key_ == kMetadataKey ? "an object" : "an object with dtype, shape and data_offsets",
             got);
    refuse(kFieldValues[field_], got);
  }

  bool start_ignored(const std::string& got) {
    other(got);
    inside_ = Inside::kIgnored;
    // The header and the tensor are two levels.
    if (++ignored_ + 2 > kSafetensorsMaxDepth) {
      throw FormatError("header: expected at most " + std::to_string(kSafetensorsMaxDepth) +
                        " levels of nesting, got more");
    }
    return true;
  }

  bool end() {
    switch (inside_) {
      case Inside::kIgnored:
        if (--ignored_ == 0) inside_ = Inside::kTensor;
        break;
      case Inside::kOffsets:
        if (offsets_ != 2) refuse(kFieldValues[kOffsets], std::to_string(offsets_) + " numbers");
        [[fallthrough]];
      case Inside::kShape:
        inside_ = Inside::kTensor;
        break;
      case Inside::kTensor:
        for (field_ = kDtype; field_ != kUnknown; field_ = static_cast<Field>(field_ + 1)) {
          if (!seen_[field_]) refuse(kFieldValues[field_], "nothing");
        }
        [[fallthrough]];
      case Inside::kMetadata:
        inside_ = Inside::kHeader;
        break;
      case Inside::kHeader:
      case Inside::kNothing:
        inside_ = Inside::kNothing;
    }
    return true;
  }

  /// What a value belongs to, e.g. `tensor "w", shape`.
  std::string place() const {
    if (inside_ == Inside::kMetadata) return "metadata " + in_quotes(key_);
    if (inside_ == Inside::kHeader && key_ == kMetadataKey) return in_quotes(key_);
    return "tensor " + in_quotes(key_) +
           (inside_ == Inside::kHeader ? "" : ", " + std::string(kFieldNames[field_]));
  }

  [[noreturn]] void refuse(std::string_view expected, const std::string& got) const {
    throw FormatError(place() + ": expected " + std::string(expected) + ", got " + got);
  }

  Inside inside_ = Inside::kNothing;
  /// The tensor, or the entry of the metadata, that is being read.
  std::string key_;
  Field field_ = kUnknown;
  std::array<bool, 3> seen_ = {};
  std::size_t offsets_ = 0;
  std::size_t ignored_ = 0;
  std::set<std::string> names_;
  std::set<std::string> metadata_keys_;
};

}  // namespace

SafetensorsHeader read_safetensors_json(std::string_view text) {
  if (!text.starts_with('{'))
    throw FormatError("header: expected '{' as its first byte, got something else");
  // The parser takes a zero byte for the end of the text.
  if (text.find('\0') != std::string_view::npos)
    throw FormatError("header: expected JSON in UTF-8, got a zero byte");
  Builder builder;
  json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.header);
}

}  // namespace attn::formats
