#include "weights/formats/pt2_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

using nlohmann::json;

struct DtypeRow {
  std::uint64_t number;
  ElementType type;
};

/// torch.export's own numbers.
constexpr std::array kDtypes = {
    DtypeRow{1, ElementType::kUInt8},           DtypeRow{2, ElementType::kInt8},
    DtypeRow{3, ElementType::kInt16},           DtypeRow{4, ElementType::kInt32},
    DtypeRow{5, ElementType::kInt64},           DtypeRow{6, ElementType::kFloat16},
    DtypeRow{7, ElementType::kFloat32},         DtypeRow{8, ElementType::kFloat64},
    DtypeRow{9, ElementType::kComplex32},       DtypeRow{10, ElementType::kComplex64},
    DtypeRow{11, ElementType::kComplex128},     DtypeRow{12, ElementType::kBool},
    DtypeRow{13, ElementType::kBFloat16},       DtypeRow{28, ElementType::kUInt16},
    DtypeRow{29, ElementType::kFloat8E4M3},     DtypeRow{30, ElementType::kFloat8E5M2},
    DtypeRow{31, ElementType::kFloat8E4M3Fnuz}, DtypeRow{32, ElementType::kFloat8E5M2Fnuz},
    DtypeRow{33, ElementType::kFloat8E8M0},     DtypeRow{34, ElementType::kUInt32},
    DtypeRow{35, ElementType::kUInt64},
};
constexpr std::uint64_t kStrided = 7;

/// Builds the list from the parser's events, without a tree. Where a value belongs is told by the
/// keys around it: config, NAME, "tensor_meta", "sizes", [], "as_int".
class Builder final : public nlohmann::json_sax<json> {
 public:
  std::vector<Pt2Weight> weights;

  bool start_object(std::size_t) override { return enter(""); }
  bool start_array(std::size_t) override { return enter("[]"); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(string_t& key) override {
    keys_.back() = std::move(key);
    if (keys_.size() == 2 && keys_[0] == "config") start_weight(keys_[1]);
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (!inside_weight()) return true;
    if (is({"tensor_meta", "dtype"})) {
      const auto* row = std::ranges::find(kDtypes, value, &DtypeRow::number);
      if (row == kDtypes.end()) refuse("a dtype of dense tensors", std::to_string(value));
      weights.back().type = row->type;
      has_dtype_ = true;
    } else if (is({"tensor_meta", "layout"})) {
      if (value != kStrided) refuse("a strided tensor", "another layout");
    } else if (is({"tensor_meta", "storage_offset", "as_int"})) {
      weights.back().offset = value;
    } else if (is({"tensor_meta", "sizes", "[]", "as_int"})) {
      add(weights.back().sizes, value);
    } else if (is({"tensor_meta", "strides", "[]", "as_int"})) {
      add(weights.back().strides, value);
    } else {
      return other("a number in another place");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (!inside_weight() || !is({"path_name"})) return other("a string");
    weights.back().path = std::move(value);
    return true;
  }

  bool boolean(bool value) override {
    if (!inside_weight() || !is({"use_pickle"})) return other("a boolean");
    weights.back().pickled = value;
    return true;
  }

  bool null() override { return other("null"); }
  bool number_integer(number_integer_t) override { return other("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a fraction"); }
  bool binary(binary_t&) override { return other("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    throw FormatError("list of weights: expected JSON in UTF-8, got something else at its byte " +
                      std::to_string(position));
  }

  void end() { end_weight(); }

 private:
  bool enter(std::string_view key) {
    if (keys_.size() >= kMaxDepth) {
      throw FormatError("list of weights: expected at most " + std::to_string(kMaxDepth) +
                        " levels of nesting, got more");
    }
    keys_.emplace_back(key);
    return true;
  }

  bool leave() {
    keys_.pop_back();
    return true;
  }

  bool inside_weight() const { return keys_.size() > 2 && keys_[0] == "config"; }

  /// Whether the keys inside the weight are these.
  bool is(std::initializer_list<std::string_view> keys) const {
    return std::equal(keys_.begin() + 2, keys_.end(), keys.begin(), keys.end());
  }

  /// A value with no meaning of its own: an error where a number of sizes, strides or offset belongs.
  bool other(const std::string& got) const {
    if (!inside_weight() || keys_.size() < 4 || keys_[2] != "tensor_meta") return true;
    const std::string& field = keys_[3];
    if (field == "sizes" || field == "strides" || field == "storage_offset" || field == "dtype") {
      refuse("a number of 0 or more as " + field, got);
    }
    return true;
  }

  void start_weight(const std::string& name) {
    end_weight();
    if (weights.size() >= kMaxTensors) {
      throw FormatError("list of weights: expected at most " + std::to_string(kMaxTensors) +
                        ", got more");
    }
    if (!names_.insert(name).second) {
      throw FormatError("tensor " + in_quotes(name) + ": expected one of this name, got two");
    }
    weights.emplace_back().name = name;
    has_dtype_ = false;
  }

  void end_weight() const {
    if (weights.empty()) return;
    if (weights.back().path.empty()) refuse("a record with its bytes", "none");
    if (!weights.back().pickled && !has_dtype_) refuse("a dtype", "none");
  }

  void add(std::vector<std::uint64_t>& numbers, std::uint64_t number) const {
    if (numbers.size() >= kMaxDimensions) {
      refuse("at most " + std::to_string(kMaxDimensions) + " dimensions", "more");
    }
    numbers.push_back(number);
  }

  [[noreturn]] void refuse(const std::string& expected, const std::string& got) const {
    throw FormatError("tensor " + in_quotes(weights.back().name) + ": expected " + expected +
                      ", got " + got);
  }

  /// The key at each level of nesting; "[]" in arrays.
  std::vector<std::string> keys_;
  std::set<std::string> names_;
  bool has_dtype_ = false;
};

}  // namespace

std::vector<Pt2Weight> read_pt2_config(std::string_view text) {
  // The parser takes a zero byte for the end of the text.
  if (text.find('\0') != text.npos) {
    throw FormatError("list of weights: expected JSON in UTF-8, got a zero byte");
  }
  Builder builder;
  json::sax_parse(text.begin(), text.end(), &builder);
  builder.end();
  return std::move(builder.weights);
}

}  // namespace attn::formats
