#include "golden/given_weights.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>

#include "golden/subject.h"
#include "weights/formats/format_error.h"
#include "weights/recognise.h"

namespace attn::golden {
namespace {

/// Runs in float64 with every number off by one rounding.
constexpr uint64_t kDraws = 4;
/// Of the largest error that was seen: 4 for having few samples of it, twice since the file's output
/// and that of a backend may lie on either side of the float64 one.
constexpr double kFactor = 8.0;
constexpr int64_t kDefaultHeads = 8;
/// Of the prefixes that an error names, about.
constexpr size_t kMostText = 200;

bool is_heads(const std::string& option) { return option.ends_with("heads"); }

/// 0 where the module has none.
int64_t heads_of(const Case& declared) {
  for (const auto& [name, value] : declared.options.items())
    if (is_heads(name)) return value.get<int64_t>();
  return declared.options.contains("embedding_dim") ? kDefaultHeads : 0;
}

/// The layer under the prefix that is the module's, among those that `recognise` finds.
RecognisedLayer find_layer(const GivenWeights& weights) {
  std::string others;
  for (RecognisedLayer& layer : recognise(read_weights(weights.path))) {
    if (layer.module != "attn::" + weights.module || layer.layout != weights.layout) continue;
    if (layer.prefix == weights.prefix) return std::move(layer);
    if (others.size() < kMostText)
      others += (others.empty() ? "; it has one under " : ", ") + formats::in_quotes(layer.prefix);
  }
  TORCH_CHECK(false, "[check] --weights: expected a ", weights.module,
              weights.layout.empty() ? "" : " in the layout ", weights.layout, " under the prefix ",
              formats::in_quotes(weights.prefix), ", got none that attn recognises in ",
              weights.path, others);
}

Json options_of(const GivenWeights& weights) {
  const RecognisedLayer layer = find_layer(weights);
  Json options = Json::object();
  for (const auto& [name, told, is_option] : layer.arguments) {
    std::optional<int64_t> value = told;
    if (is_heads(name) && weights.heads > 0) {
      TORCH_CHECK(!told || *told == weights.heads, "[check] --heads: expected ", told.value_or(0),
                  ", as ", weights.path, " says, got ", weights.heads);
      value = weights.heads;
    }
    TORCH_CHECK(value || is_option, "[check] --heads: expected the number of heads, which ",
                weights.path, " does not tell");
    if (value) options[name] = *value;
  }
  return options;
}

/// The same problem in float64.
Golden in_double(const Golden& golden) {
  Golden exact = golden;
  exact.golden_case.dtype = at::kDouble;
  for (auto& [name, tensor] : exact.tensors) {
    if (tensor.is_floating_point())
      tensor = tensor.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  }
  return exact;
}

at::Tensor run_output(Experiment experiment) {
  return experiment.run(/*gradients=*/false).front().second.to(at::kDouble);
}

double largest(const at::Tensor& values) {
  const at::Tensor finite = values.abs().masked_select(values.isfinite());
  return finite.numel() == 0 ? 0.0 : finite.max().item<double>();
}

/// 8 · max(|reference − f64|, |disturbed − f64| in four draws, u · |f64|), over finite elements.
double bound_of(const Golden& golden, const WeightSource& weights, double unit) {
  const BackendGuard guard(Backend::kReference);
  const at::Tensor exact = run_output(Experiment(in_double(golden), weights));
  double spread =
      std::max(unit * largest(exact), largest(run_output(Experiment(golden, weights)) - exact));
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    Experiment experiment(in_double(golden), weights);
    experiment.disturb(unit, draw);
    spread = std::max(spread, largest(run_output(std::move(experiment)) - exact));
  }
  return kFactor * spread;
}

double unit_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 0x1p-53;
    case at::kFloat:
      return 0x1p-24;
    case at::kHalf:
      return 0x1p-11;
    case at::kBFloat16:
      return 0x1p-8;
    default:
      return 0.0;
  }
}

/// Sorts the tensors of the file into a golden's.
void take_tensors(Golden& golden, const NamedTensors& tensors) {
  const std::vector<std::string>& arguments = argument_names(golden.golden_case.module);
  for (const std::string& argument : arguments) {
    const at::Tensor given = find_or(tensors, argument, at::Tensor());
    if (given.defined()) golden.golden_case.inputs.emplace_back(argument, given.sizes().vec());
  }
  std::string known = "\"output\", \"mask\"";
  for (const std::string& argument : arguments) known += ", \"" + argument + '"';
  for (const auto& [name, tensor] : tensors) {
    const bool is_argument =
        name == "mask" || std::ranges::find(arguments, name) != arguments.end();
    TORCH_CHECK(is_argument || name == "output", "[check] ", golden.path,
                ": expected tensors named ", known, ", got ", formats::in_quotes(name));
    golden.tensors.emplace_back(is_argument ? "input." + name : name, tensor.clone());
  }
}

}  // namespace

void adopt(Golden& golden, const GivenWeights& weights) {
  const Case& declared = golden.golden_case;
  TORCH_CHECK(weights.module.empty() || weights.module == declared.module,
              "[check] --module: expected ", declared.module, ", as ", golden.path, " says, got ",
              weights.module);
  TORCH_CHECK(weights.heads == 0 || weights.heads == heads_of(declared),
              "[check] --heads: expected ", heads_of(declared), ", as ", golden.path, " says, got ",
              weights.heads);
  if (!weights.tolerance) return;
  for (auto& [name, bound] : golden.tolerance) bound = *weights.tolerance;
}

WeightSource source_of(const GivenWeights& weights, const Case& declared) {
  LoadOptions options = LoadOptions().prefix(weights.prefix).layout(weights.layout);
  if (!weights.layout.empty()) options.n_heads(heads_of(declared));
  return {weights.path, options};
}

Golden read_golden_by_hand(const std::string& path, const GivenWeights& weights) {
  TORCH_CHECK(!weights.module.empty(), "[check] ", path,
              ": expected the metadata entry \"case\", as export_golden.py writes it, or --module");
  Golden golden;
  golden.path = path;
  golden.golden_case.name = std::filesystem::path(path).stem().string();
  golden.golden_case.module = weights.module;
  golden.golden_case.gradients = false;
  take_tensors(golden, read_weights(path));
  const at::Tensor output = find_or(golden.tensors, "output", at::Tensor());
  const double unit = output.defined() ? unit_of(output.scalar_type()) : 0.0;
  TORCH_CHECK(unit > 0.0, "[check] ", path,
              ": expected a tensor \"output\" of float32, float64, float16 or bfloat16");
  golden.golden_case.dtype = output.scalar_type();
  golden.golden_case.options = options_of(weights);
  golden.tensors.emplace_back("f64.output", output.to(at::kDouble));
  golden.tolerance.emplace_back(
      "output", weights.tolerance ? *weights.tolerance
                                  : bound_of(golden, source_of(weights, golden.golden_case), unit));
  return golden;
}

}  // namespace attn::golden
