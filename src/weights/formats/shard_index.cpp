#include "weights/formats/shard_index.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

using nlohmann::json;

bool is_plain_name(std::string_view file) {
  return !file.empty() && file != "." && file != ".." &&
         file.find_first_of(std::string_view("/\\\0", 3)) == file.npos;
}

/// Builds the index from the parser's events: no tree, no recursion, whatever the text.
class Builder final : public nlohmann::json_sax<json> {
 public:
  ShardIndex index;
  bool has_map = false;

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary data"); }

  bool string(string_t& value) override {
    if (!in_map_ || depth_ != 2) return other("a string");
    if (!is_plain_name(value)) {
      throw FormatError("weight_map, " + in_quotes(key_) +
                        ": expected the name of a file beside the index, got " + in_quotes(value));
    }
    const auto [file, fresh] = files_.try_emplace(value, index.files.size());
    if (fresh) index.files.push_back(value);
    if (index.tensors.size() == kMaxTensors) {
      throw FormatError("weight_map: expected at most " + std::to_string(kMaxTensors) +
                        " tensors, got more");
    }
    index.tensors.emplace_back(key_, file->second);
    return true;
  }

  bool start_object(std::size_t) override {
    if (depth_ == 1 && key_ == "weight_map") in_map_ = has_map = true;
    return enter(in_map_ && depth_ == 1, "an object");
  }
  bool start_array(std::size_t) override { return enter(false, "an array"); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(string_t& key) override {
    if (depth_ == 1 || in_map_) key_ = key;
    const bool twice = (depth_ == 1 && key == "weight_map" && has_map) ||
                       (in_map_ && depth_ == 2 && !names_.insert(key).second);
    if (twice) throw FormatError(in_quotes(key) + ": expected once, got twice");
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    throw FormatError("expected JSON in UTF-8, got something else at byte " +
                      std::to_string(position));
  }

 private:
  bool enter(bool expected, const std::string& got) {
    if (!expected && depth_ > 0) other(got);
    if (++depth_ > kMaxDepth) {
      throw FormatError("expected at most " + std::to_string(kMaxDepth) +
                        " levels of nesting, got more");
    }
    return true;
  }

  bool leave() {
    if (--depth_ == 1) in_map_ = false;
    return true;
  }

  /// A value that is no entry of the map: fine beside the map alone.
  bool other(const std::string& got) const {
    if (in_map_)
      throw FormatError("weight_map, " + in_quotes(key_) + ": expected a file name, got " + got);
    if (depth_ == 1 && key_ == "weight_map")
      throw FormatError("weight_map: expected an object, got " + got);
    return true;
  }

  std::size_t depth_ = 0;
  bool in_map_ = false;
  std::string key_;
  std::map<std::string, std::size_t> files_;
  std::set<std::string> names_;
};

}  // namespace

ShardIndex parse_shard_index(std::string_view json_text) {
  if (json_text.size() > kMaxText)
    throw FormatError("expected at most " + std::to_string(kMaxText) + " bytes, got more");
  Builder builder;
  json::sax_parse(json_text, &builder);
  if (!builder.has_map)
    throw FormatError("expected an object with \"weight_map\", got JSON without it");
  return std::move(builder.index);
}

}  // namespace attn::formats
