#include <attn/weights.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "cli/commands/commands.h"
#include "cli/progress_bar.h"
#include "cli/text.h"
#include "golden/case.h"
#include "weights/save_format.h"

namespace attn::cli {
namespace {

/// Entries that are named of what was left behind.
constexpr size_t kShown = 5;

/// Bytes of tensors that are fine however few the file has, and how often these may be repeated.
constexpr double kAnyClaim = 1 << 30;
constexpr double kMostRepeats = 64;

constexpr std::array kFormats = {std::pair{"safetensors", WeightFormat::kSafetensors},
                                 std::pair{"state_dict", WeightFormat::kStateDict},
                                 std::pair{"torchscript", WeightFormat::kTorchScript},
                                 std::pair{"npz", WeightFormat::kNpz},
                                 std::pair{"npy", WeightFormat::kNpy}};

struct ConvertArguments {
  std::string in, out, prefix, layout, dtype, format;
  int64_t heads = 0;
  bool opaque = false, quiet = false;
};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const auto& [name, format] : kFormats) names.emplace_back(name);
  return names;
}

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  for (const WeightLayout& layout : weight_layouts()) names.push_back(layout.name);
  return names;
}

WeightFormat output_format(const ConvertArguments& arguments) {
  if (arguments.format.empty()) {
    const auto format = format_by_suffix(arguments.out);
    if (!format) {
      throw CLI::ValidationError("out", fmt::format("expected the suffix {}, or --format, got {}",
                                                    kWrittenSuffixes, printable(arguments.out)));
    }
    return *format;
  }
  return std::ranges::find(kFormats, arguments.format,
                           [](const auto& known) { return std::string_view(known.first); })
      ->second;
}

/// A small file may claim terabytes, of one number repeated by strides of 0.
void check_claim(const NamedTensors& tensors) {
  double claimed = 0.0, stored = 0.0;
  std::set<const void*> storages;
  for (const auto& [name, tensor] : tensors) {
    claimed += static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
    const at::Storage& storage = tensor.storage();
    if (storages.insert(storage.data()).second) stored += static_cast<double>(storage.nbytes());
  }
  TORCH_CHECK(claimed <= std::max(kAnyClaim, kMostRepeats * stored),
              "[convert] in: expected tensors that repeat their bytes up to ", kMostRepeats,
              " times, got ", claimed, " bytes made of ", stored);
}

/// Floating tensors in another dtype. Those that are the same tensor under two names stay one.
void convert_dtype(NamedTensors& tensors, at::ScalarType dtype) {
  using Place = std::tuple<const void*, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;
  std::map<Place, at::Tensor> converted;
  for (auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point()) continue;
    TORCH_CHECK(tensor.scalar_type() != at::kFloat4_e2m1fn_x2,
                "[convert] --dtype: expected floating tensors that LibTorch converts, got \"",
                printable(name), "\" of float4_e2m1fn_x2");
    at::Tensor& same = converted[{tensor.const_data_ptr(), tensor.scalar_type(),
                                  tensor.sizes().vec(), tensor.strides().vec()}];
    if (!same.defined()) same = tensor.to(dtype);
    tensor = same;
  }
}

/// That of the file, where both are safetensors (shards repeat theirs); else what Python's loaders
/// look for.
SaveOptions::Metadata output_metadata(const WeightFile& file) {
  if (!file.format.ends_with("safetensors")) return {{"format", "pt"}};
  SaveOptions::Metadata metadata;
  std::map<std::string, std::string> known;
  for (const auto& [key, value] : file.metadata)
    if (known.emplace(key, value).second) metadata.emplace_back(key, value);
  return metadata;
}

WeightFile read_input(const ConvertArguments& arguments) {
  WeightFile file = read_weight_file(
      arguments.in, LoadOptions().prefix(arguments.prefix).opaque(arguments.opaque));
  TORCH_CHECK(!file.tensors.empty() || arguments.prefix.empty(),
              "[convert] --prefix: expected the beginning of a tensor's name, got \"",
              printable(arguments.prefix), '"');
  check_claim(file.tensors);
  // A .npy file keeps no name.
  if (file.format == "npy" && file.tensors.size() == 1)
    file.tensors.front().first = std::filesystem::path(arguments.in).stem().string();
  if (!arguments.layout.empty())
    file.tensors = convert_layout(file.tensors, arguments.layout, arguments.heads);
  if (!arguments.dtype.empty()) convert_dtype(file.tensors, golden::parse_dtype(arguments.dtype));
  return file;
}

void print_written(const WeightFile& file, const std::string& path) {
  std::error_code ignored;
  fmt::print("{}: {} tensor{}, {}\n", printable(path), file.tensors.size(),
             file.tensors.size() == 1 ? "" : "s",
             bytes_text(std::filesystem::file_size(path, ignored)));
  if (file.skipped.empty()) return;
  std::string text;
  for (size_t i = 0; i < std::min(file.skipped.size(), kShown); ++i) {
    const auto& [name, what, is_tensor] = file.skipped[i];
    text += (i ? ", " : "") + printable(name.empty() ? what : name + " (" + what + ')');
  }
  if (file.skipped.size() > kShown)
    text += fmt::format(" and {} more; attn inspect lists all", file.skipped.size() - kShown);
  fmt::print("left out: {}\n", text);
}

void convert(const ConvertArguments& arguments) {
  const WeightFormat format = output_format(arguments);
  const WeightFile file = read_input(arguments);
  SaveOptions options;
  options.format(format).metadata(output_metadata(file));
  {
    ProgressBar bar(arguments.out);
    if (!arguments.quiet && bar.is_seen())
      options.progress([&](uint64_t done, uint64_t total) { bar.show(done, total); });
    save_weights(file.tensors, arguments.out, options);
  }
  if (!arguments.quiet) print_written(file, arguments.out);
}

}  // namespace

void add_convert(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command = app.add_subcommand(
      "convert", "Write the tensors of a weight file to another: another format, layout or dtype");
  command->add_option("in", arguments->in, "A weight file of any format that attn reads")
      ->required();
  command
      ->add_option("out", arguments->out,
                   "Where to write; it may be the same file. Its suffix says the format: " +
                       std::string(kWrittenSuffixes))
      ->required();
  command->add_option("--prefix", arguments->prefix,
                      "Only names that begin with this, without it: \"encoder.layers.0.\"");
  CLI::Option* layout = command->add_option("--layout", arguments->layout,
                                            "Convert one layer out of another layout; see "
                                            "docs/weight-layouts.md");
  layout->check(CLI::IsMember(layout_names()));
  command->add_option("--heads", arguments->heads, "Heads, where the layout must be told")
      ->check(CLI::PositiveNumber)
      ->needs(layout);
  command
      ->add_option("--dtype", arguments->dtype,
                   "Of the floating tensors; all others stay as they are")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16", "float16"}));
  command->add_option("--format", arguments->format, "Instead of what the suffix says")
      ->check(CLI::IsMember(format_names()));
  command->add_flag(
      "--opaque", arguments->opaque,
      "Leave out unknown classes of a pickle instead of refusing the file; nothing of them runs");
  command->add_flag("--quiet", arguments->quiet, "Print nothing where all is well");
  command->callback([arguments, &exit_code] {
    convert(*arguments);
    exit_code = kGood;
  });
}

}  // namespace attn::cli
