#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Golden cases: one declaration, read here and by scripts/export_golden.py.
namespace attn::golden {

using Json = nlohmann::ordered_json;

/// How a case's mask is made; see `make_mask`.
struct MaskSpec {
  std::string kind;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kBool;
  int64_t offset = 0;
};

/// One case of tests/golden/cases.json; tests/golden/README.md describes the fields.
struct Case {
  std::string name;
  /// Class or function, e.g. "XavierMultiheadAttention".
  std::string module;
  /// Constructor arguments by the document's names.
  Json options;
  at::ScalarType dtype = at::kFloat;
  /// Arguments in forward's order with their shapes; those of `alias` are not among them.
  std::vector<std::pair<std::string, std::vector<int64_t>>> inputs;
  /// Arguments that are the same tensor as another one.
  std::vector<std::pair<std::string, std::string>> alias;
  /// Power of two on an argument's values.
  std::vector<std::pair<std::string, int>> magnitude;
  /// How the inputs lie in memory; see `with_layout`.
  std::string layout = "contiguous";
  std::optional<MaskSpec> mask;
  bool need_weights = false;
  bool train = false;
  uint64_t seed = 0;
  bool gradients = true;
  int threads = 1;
  /// Weight files beside the golden file, instead of parameters made by formula.
  std::vector<std::string> weights;
  /// What the names of this module begin with in those files, e.g. "encoder.layers.0.".
  std::string prefix;
  /// The layout that those files have, where it is not the module's own; see `weight_layouts`.
  std::string weights_layout;
  /// The declaration itself, to tell a stale file.
  Json source;
};

/// Throws `c10::Error` naming the case and the field that is missing or not understood.
Case parse_case(const Json& source);

/// The cases of a cases.json, in order.
std::vector<Case> read_cases(const std::string& path);

/// torch.float32 is called "float32", and so on.
at::ScalarType parse_dtype(const std::string& name);

/// The value of `key` in a list of pairs, or `fallback`.
template <class Value>
Value find_or(const std::vector<std::pair<std::string, Value>>& pairs, const std::string& key,
              Value fallback) {
  for (const auto& [name, value] : pairs) {
    if (name == key) return value;
  }
  return fallback;
}

}  // namespace attn::golden
