#include <attn/weights.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/columns.h"
#include "cli/commands/commands.h"
#include "cli/statistics.h"
#include "cli/text.h"
#include "weights/recognise.h"

namespace attn::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Entries of a list that is not what the reader came for.
constexpr size_t kShown = 10;

struct InspectArguments {
  std::string path, prefix;
  bool stats = false, opaque = false, json = false;
};

/// What is printed, as text or JSON.
struct Inspection {
  WeightFile file;
  uint64_t file_bytes = 0;
  std::vector<RecognisedLayer> layers;
};

uint64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
}

/// Of all tensors; a file that repeats numbers can claim more than there are bytes.
uint64_t bytes_of(const NamedTensors& tensors) {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    if (__builtin_add_overflow(sum, bytes_of(tensor), &sum))
      return std::numeric_limits<uint64_t>::max();
  }
  return sum;
}

std::string dtype_of(const at::Tensor& tensor) {
  return std::string(c10::getDtypeNames(tensor.scalar_type()).first);
}

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

void keep_prefix(WeightFile& file, const InspectArguments& arguments) {
  const auto is_other = [&](const std::string& name) {
    return !name.starts_with(arguments.prefix);
  };
  std::erase_if(file.tensors, [&](const auto& item) { return is_other(item.first); });
  std::erase_if(file.skipped, [&](const auto& entry) { return is_other(entry.name); });
  TORCH_CHECK(!file.tensors.empty() || arguments.prefix.empty(),
              "[inspect] --prefix: expected the beginning of a tensor's name, got \"",
              printable(arguments.prefix), '"');
}

void print_tensors(const NamedTensors& tensors, bool stats) {
  std::vector<std::optional<Statistics>> statistics;
  if (stats) {
    for (const auto& [name, tensor] : tensors) statistics.push_back(statistics_of(tensor));
  }
  print_columns(tensors.size() + 1, [&](size_t line) -> Cells {
    if (line == 0) {
      return stats ? Cells{"shape", "dtype", "bytes", "min", "max", "NaN", "tensor"}
                   : Cells{"shape", "dtype", "bytes", "tensor"};
    }
    const auto& [name, tensor] = tensors[line - 1];
    Cells cells = {shape_of(tensor), dtype_of(tensor), bytes_text(bytes_of(tensor))};
    if (stats) {
      const auto& known = statistics[line - 1];
      cells.push_back(known ? known->least : "–");
      cells.push_back(known ? known->greatest : "–");
      cells.push_back(known ? fmt::format("{}", known->nans) : "–");
    }
    cells.push_back(name.empty() ? "(no name)" : printable(name));
    return cells;
  });
}

/// "skipped: epoch (int), args (Namespace) and 7 more; --json lists all"
template <class List, class ToText>
void print_list(std::string_view title, const List& list, ToText to_text) {
  if (list.empty()) return;
  std::string text;
  for (size_t i = 0; i < std::min(list.size(), kShown); ++i)
    text += (i ? ", " : "") + printable(to_text(list[i]));
  if (list.size() > kShown)
    text += fmt::format(" and {} more; --json lists all", list.size() - kShown);
  fmt::print("\n{}: {}\n", title, text);
}

/// Layers of a kind that follow each other share the code of the last of them.
void print_layers(const std::vector<RecognisedLayer>& layers, const std::string& path) {
  if (layers.empty()) {
    fmt::print("\nNo attention layer that attn knows.\n");
    return;
  }
  fmt::print("\n");
  for (size_t i = 0; i < layers.size(); ++i) {
    const RecognisedLayer& layer = layers[i];
    fmt::print("{} fits {}{}{}\n", layer.prefix.empty() ? "The file" : printable(layer.prefix),
               layer.title(), layer.layout.empty() ? "" : ", layout " + layer.layout,
               layer.others > 0 ? fmt::format(", beside {} other tensors", layer.others) : "");
    const bool is_last = i + 1 == layers.size() || layers[i + 1].title() != layer.title() ||
                         layers[i + 1].layout != layer.layout;
    if (!is_last) continue;
    if (!layer.note.empty()) fmt::print("    // {}\n", layer.note);
    std::string code = layer.code(path);
    for (size_t end = 0; (end = code.find('\n', end)) != std::string::npos; ++end)
      code.insert(end + 1, "    ");
    fmt::print("    {}\n", code);
  }
}

void print_text(const Inspection& inspection, const InspectArguments& arguments) {
  const WeightFile& file = inspection.file;
  fmt::print("{}: {}, {}; {} tensor{} of {}\n", printable(arguments.path), file.format,
             bytes_text(inspection.file_bytes), file.tensors.size(),
             file.tensors.size() == 1 ? "" : "s", bytes_text(bytes_of(file.tensors)));
  if (!file.tensors.empty()) {
    fmt::print("\n");
    print_tensors(file.tensors, arguments.stats);
  }
  print_list("skipped", file.skipped, [](const auto& entry) {
    return entry.name.empty() ? entry.what : entry.name + " (" + entry.what + ')';
  });
  print_list("kept inert", file.opaque, [](const auto& name) { return name; });
  print_list("metadata", file.metadata,
             [](const auto& entry) { return entry.first + " = " + entry.second; });
  print_layers(inspection.layers, arguments.path);
}

/// A number where it is finite.
Json to_json(const std::string& number) {
  if (number == "–") return nullptr;
  const Json parsed = Json::parse(number, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? Json(number) : parsed;
}

Json to_json(const std::string& name, const at::Tensor& tensor, bool stats) {
  Json json = {{"name", name},
               {"shape", tensor.sizes().vec()},
               {"dtype", dtype_of(tensor)},
               {"bytes", bytes_of(tensor)}};
  if (const auto known = stats ? statistics_of(tensor) : std::nullopt) {
    json["min"] = to_json(known->least);
    json["max"] = to_json(known->greatest);
    json["nan"] = known->nans;
  }
  return json;
}

Json to_json(const RecognisedLayer& layer, const std::string& path) {
  Json arguments = Json::object();
  for (const auto& [name, value, is_option] : layer.arguments)
    arguments[name] = value ? Json(*value) : Json();
  return {{"prefix", layer.prefix},        {"fits", layer.title()},   {"module", layer.module},
          {"arguments", arguments},        {"layout", layer.layout},  {"note", layer.note},
          {"other_tensors", layer.others}, {"code", layer.code(path)}};
}

void print_json(const Inspection& inspection, const InspectArguments& arguments) {
  const WeightFile& file = inspection.file;
  Json json = {{"file", arguments.path},
               {"format", file.format},
               {"file_bytes", inspection.file_bytes},
               {"tensor_bytes", bytes_of(file.tensors)}};
  for (const char* list : {"tensors", "skipped", "opaque", "metadata", "layers"})
    json[list] = Json::array();
  for (const auto& [name, tensor] : file.tensors)
    json["tensors"].push_back(to_json(name, tensor, arguments.stats));
  for (const auto& entry : file.skipped)
    json["skipped"].push_back({{"name", entry.name}, {"what", entry.what}});
  for (const std::string& name : file.opaque) json["opaque"].push_back(name);
  for (const auto& [key, value] : file.metadata)
    json["metadata"].push_back({{"key", key}, {"value", value}});
  for (const RecognisedLayer& layer : inspection.layers)
    json["layers"].push_back(to_json(layer, arguments.path));
  // In ASCII, for a terminal; the names of a pickle need not be UTF-8.
  fmt::print("{}\n", json.dump(2, ' ', true, Json::error_handler_t::replace));
}

void inspect(const InspectArguments& arguments) {
  Inspection inspection;
  inspection.file = read_weight_file(arguments.path, LoadOptions().opaque(arguments.opaque));
  keep_prefix(inspection.file, arguments);
  std::error_code ignored;
  inspection.file_bytes = std::filesystem::file_size(arguments.path, ignored);
  inspection.layers = recognise(inspection.file.tensors);
  if (arguments.json) {
    print_json(inspection, arguments);
  } else {
    print_text(inspection, arguments);
  }
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand(
      "inspect",
      "Say what a weight file holds, and which attention layers with the C++ to load them");
  command->add_option("file", arguments->path, "A weight file of any format that attn reads")
      ->required();
  command->add_option("--prefix", arguments->prefix, "Only names that begin with this");
  command->add_flag("--stats", arguments->stats, "Minimum, maximum and NaN count of every tensor");
  command->add_flag(
      "--opaque", arguments->opaque,
      "Keep unknown classes of a pickle as inert values instead of refusing the file");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([arguments, &exit_code] {
    inspect(*arguments);
    exit_code = kGood;
  });
}

}  // namespace attn::cli
