#include "golden/file.h"

#include <attn/weights.h>
#include <c10/util/Exception.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "weights/formats/safetensors.h"

namespace attn::golden {
namespace {

/// The metadata entry as JSON, null where it is missing.
Json read_json(const WeightFile& file, const std::string& path, const std::string& key) {
  const std::string text = find_or(file.metadata, key, std::string());
  if (text.empty()) return nullptr;
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  TORCH_CHECK(!json.is_discarded(), "[golden] ", path, ": expected JSON in the metadata entry \"",
              key, "\"");
  return json;
}

/// "case/tensor" → tensors by case.
std::map<std::string, NamedTensors> split_bundle(const NamedTensors& tensors) {
  std::map<std::string, NamedTensors> bundle;
  for (const auto& [name, tensor] : tensors) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos) continue;
    bundle[name.substr(0, slash)].emplace_back(name.substr(slash + 1), tensor);
  }
  return bundle;
}

Golden read_single(const WeightFile& file, const std::string& path, const Json& source) {
  Golden golden;
  golden.golden_case = parse_case(source);
  golden.path = path;
  golden.tensors = file.tensors;
  const Json tolerance = read_json(file, path, "tolerance");
  for (const auto& [name, bound] : tolerance.items()) {
    golden.tolerance.emplace_back(name, bound.get<double>());
  }
  const Json projected = read_json(file, path, "projected");
  for (const Json& name : projected) golden.projected.push_back(name.get<std::string>());
  golden.torch_version = find_or(file.metadata, "torch", std::string("unknown"));
  golden.python_seconds = std::stod(find_or(file.metadata, "seconds", std::string("0")));
  return golden;
}

std::vector<Golden> read_goldens(const WeightFile& file, const std::string& path) {
  std::vector<Golden> goldens;
  if (const Json source = read_json(file, path, "case"); !source.is_null()) {
    goldens.push_back(read_single(file, path, source));
  }
  if (const Json sources = read_json(file, path, "cases"); !sources.is_null()) {
    std::map<std::string, NamedTensors> bundle = split_bundle(file.tensors);
    for (const Json& source : sources) {
      Golden golden;
      golden.golden_case = parse_case(source);
      golden.path = path;
      golden.tensors = std::move(bundle[golden.golden_case.name]);
      golden.torch_version = find_or(file.metadata, "torch", std::string("unknown"));
      goldens.push_back(std::move(golden));
    }
  }
  return goldens;
}

std::vector<Init> read_inits(const WeightFile& file, const std::string& path) {
  std::vector<Init> inits;
  const Json sources = read_json(file, path, "inits");
  if (sources.is_null()) return inits;
  std::map<std::string, NamedTensors> bundle = split_bundle(file.tensors);
  for (const Json& source : sources) {
    Json declared = source;
    declared["dtype"] = "float32";
    declared["inputs"] = Json::object();
    Init init;
    init.golden_case = parse_case(declared);
    for (auto& [name, tensor] : bundle[init.golden_case.name]) {
      if (name == "next") {
        init.next = tensor;
      } else {
        init.parameters.emplace_back(name, tensor);
      }
    }
    inits.push_back(std::move(init));
  }
  return inits;
}

bool is_safetensors(const std::string& path) {
  std::array<char, formats::kSafetensorsLengthBytes + 1> start{};
  std::ifstream(path, std::ios::binary).read(start.data(), start.size());
  return formats::begins_like_safetensors({start.data(), start.size()});
}

}  // namespace

GoldenFile read_golden_file(const std::string& path) {
  TORCH_CHECK(std::filesystem::is_regular_file(path) && is_safetensors(path),
              "[check] path: expected a golden file (safetensors) or a folder of them, got ", path);
  WeightFile file = read_weight_file(path);
  // Memory of their own, aligned as Python's is: the last bits of a product may depend on it.
  for (auto& [name, tensor] : file.tensors) tensor = tensor.clone();
  try {
    return {read_goldens(file, path), read_inits(file, path)};
  } catch (const std::logic_error& error) {  // a number or a JSON value of another kind
    TORCH_CHECK(false, "[golden] ", path, ": expected metadata as export_golden.py writes it, got ",
                error.what());
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK(false, "[golden] ", path, ": expected metadata as export_golden.py writes it, got ",
                error.what());
  }
}

}  // namespace attn::golden
