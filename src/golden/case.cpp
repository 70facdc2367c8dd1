#include "golden/case.h"

#include <c10/util/Exception.h>

#include <fstream>

namespace attn::golden {
namespace {

template <class Value>
std::vector<std::pair<std::string, Value>> read_pairs(const Json& object) {
  std::vector<std::pair<std::string, Value>> pairs;
  for (const auto& [name, value] : object.items())
    pairs.emplace_back(name, value.template get<Value>());
  return pairs;
}

MaskSpec parse_mask(const Json& source) {
  MaskSpec mask;
  mask.kind = source.at("kind").get<std::string>();
  mask.shape = source.at("shape").get<std::vector<int64_t>>();
  mask.dtype = parse_dtype(source.value("dtype", "bool"));
  mask.offset = source.value("offset", int64_t{0});
  return mask;
}

}  // namespace

at::ScalarType parse_dtype(const std::string& name) {
  if (name == "float32") return at::kFloat;
  if (name == "float64") return at::kDouble;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  if (name == "bool") return at::kBool;
  if (name == "uint8") return at::kByte;
  if (name == "int32") return at::kInt;
  if (name == "int64") return at::kLong;
  TORCH_CHECK(false, "[golden] dtype: expected the name of a torch dtype, got \"", name, "\"");
}

Case parse_case(const Json& source) {
  Case result;
  try {
    result.name = source.at("name").get<std::string>();
    result.module = source.at("module").get<std::string>();
    result.options = source.value("options", Json::object());
    result.dtype = parse_dtype(source.at("dtype").get<std::string>());
    result.inputs = read_pairs<std::vector<int64_t>>(source.at("inputs"));
    result.alias = read_pairs<std::string>(source.value("alias", Json::object()));
    result.magnitude = read_pairs<int>(source.value("magnitude", Json::object()));
    result.layout = source.value("layout", "contiguous");
    const Json mask = source.value("mask", Json());
    if (!mask.is_null()) result.mask = parse_mask(mask);
    result.need_weights = source.value("need_weights", false);
    result.train = source.value("mode", "eval") == "train";
    result.seed = source.at("seed").get<uint64_t>();
    result.gradients = source.value("gradients", true);
    result.threads = source.value("threads", 1);
    result.weights = source.value("weights", std::vector<std::string>());
    result.prefix = source.value("prefix", "");
    result.weights_layout = source.value("weights_layout", "");
    result.source = source;
    TORCH_CHECK(result.threads > 0, "[golden] case \"", result.name,
                "\": expected at least 1 thread, got ", result.threads);
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK(false, "[golden] case \"", result.name, "\": ", error.what());
  }
  return result;
}

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  TORCH_CHECK(file, "[golden] ", path, ": expected a readable file of cases");
  std::vector<Case> cases;
  try {
    const Json declaration = Json::parse(file);
    for (const Json& source : declaration.at("cases")) cases.push_back(parse_case(source));
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK(false, "[golden] ", path, ": ", error.what());
  }
  return cases;
}

}  // namespace attn::golden
