#include <ATen/MemoryOverlap.h>
#include <attn/weights.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <map>
#include <sstream>
#include <string_view>

#include "weights/formats/format_error.h"
#include "weights/opened_file.h"
#include "weights/prefix.h"
#include "weights/read.h"

namespace attn {
namespace {

/// Names that an error shows as examples.
constexpr std::size_t kExamples = 5;

NamedTensors tensors_of(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

bool converts(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 ||
         dtype == at::kHalf;
}

/// Whether elements share memory, so that nothing can be copied in.
bool is_expanded(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
}

bool fits(const at::Tensor& to, const at::Tensor& from) {
  const bool same_dtype = to.scalar_type() == from.scalar_type();
  return to.sizes() == from.sizes() &&
         (same_dtype || (converts(to.scalar_type()) && converts(from.scalar_type()))) &&
         to.layout() == at::kStrided && from.layout() == at::kStrided && !to.is_meta() &&
         !is_expanded(to);
}

/// "[8, 8] float32"
std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << ' ' << c10::getDtypeNames(tensor.scalar_type()).first;
  if (tensor.layout() != at::kStrided) text << ' ' << tensor.layout();
  if (tensor.is_meta()) text << " without data (device meta)";
  if (is_expanded(tensor)) text << " expanded";
  return text.str();
}

struct Copy {
  at::Tensor to, from;
};

struct Plan {
  LoadReport report;
  std::vector<Copy> copies;
};

Plan match(const NamedTensors& source, const NamedTensors& targets) {
  Plan plan;
  LoadReport& report = plan.report;
  std::map<std::string_view, at::Tensor> offered(source.begin(), source.end());
  for (const auto& [name, to] : targets) {
    const auto found = offered.extract(name);
    if (!found) {
      report.missing.push_back(name);
    } else if (!fits(to, found.mapped())) {
      report.mismatched.push_back({name, describe(to), describe(found.mapped())});
    } else {
      report.loaded.push_back(name);
      plan.copies.push_back({to, found.mapped()});
    }
  }
  // Once more through the file, for its order.
  for (const auto& [name, tensor] : source)
    if (offered.contains(name)) report.unexpected.push_back(name);
  return plan;
}

/// Prefixes that would fit; else names that the file has.
std::string hint(const NamedShapes& source, const NamedShapes& targets, const std::string& wanted) {
  std::vector<std::string> examples = fitting_prefixes(source, targets, wanted);
  std::string text = examples.empty() ? "\n  the file has:" : "\n  did you mean prefix";
  const char* end = examples.empty() ? "" : "?";
  if (examples.empty()) {
    for (const auto& [name, sizes] : source) examples.push_back(name);
  }
  if (examples.empty()) return text + " no tensors";
  for (std::size_t i = 0; i < examples.size() && i < kExamples; ++i)
    text += (i ? ", " : " ") + formats::in_quotes(examples[i]);
  return text + (examples.size() > kExamples ? ", …" : "") + end;
}

NamedShapes shapes_of(const NamedTensors& tensors) {
  NamedShapes shapes;
  for (const auto& [name, tensor] : tensors) shapes.emplace_back(name, tensor.sizes().vec());
  return shapes;
}

NamedShapes shapes_of(const OpenedFile& file) {
  NamedShapes shapes;
  for (const OpenedPart& part : file.parts) {
    for (const formats::StoredTensor& tensor : part.stored.tensors) {
      shapes.emplace_back(tensor.name,
                          std::vector<int64_t>(tensor.sizes.begin(), tensor.sizes.end()));
    }
  }
  return shapes;
}

std::vector<std::string> names_of(const std::vector<SkippedEntry>& skipped) {
  std::vector<std::string> names;
  for (const auto& [name, what, is_tensor] : skipped)
    names.push_back(is_tensor ? name : name + " (" + what + ')');
  return names;
}

/// The tensors under the module's names and shapes.
NamedTensors in_own_layout(WeightFile& file, const std::string& path, const LoadOptions& options) {
  try {
    return convert_layout(file.tensors, options.layout(), options.n_heads());
  } catch (const c10::Error& error) {
    LoadReport report;
    report.skipped = names_of(file.skipped);
    throw WeightsError("[load_weights] layout: " + reason(error) + ": " + path, std::move(report));
  }
}

[[noreturn]] void refuse(Plan& plan, std::string text, const std::string& hints) {
  if (plan.copies.empty() && plan.report.mismatched.empty()) text += hints;
  throw WeightsError(std::move(text), std::move(plan.report));
}

}  // namespace

LoadReport load_weights(torch::nn::Module& module, const std::string& path,
                        const LoadOptions& options) {
  OpenedFile opened = open_weight_file(path, options.opaque());
  const NamedTensors targets = tensors_of(module);
  const NamedShapes wanted = shapes_of(targets), offered = shapes_of(opened);
  const bool own_layout = options.layout().empty();
  const std::string prefix =
      with_wrappers(offered, own_layout ? wanted : NamedShapes(), options.prefix());
  WeightFile file = make_weight_file(std::move(opened), prefix);
  if (!own_layout && !file.tensors.empty()) file.tensors = in_own_layout(file, path, options);
  Plan plan = match(file.tensors, targets);
  LoadReport& report = plan.report;
  report.skipped = names_of(file.skipped);

  if (!prefix.empty() && file.tensors.empty()) {
    refuse(plan,
           "[load_weights] prefix: expected the beginning of a name in " + path + ", got " +
               formats::in_quotes(options.prefix()),
           hint(offered, wanted, options.prefix()));
  }
  const bool names_fit = report.missing.empty() && report.unexpected.empty();
  if (!report.mismatched.empty() || (options.strict() && !names_fit)) {
    report.loaded.clear();
    std::ostringstream text;
    text << "[load_weights] path: expected the weights of " << module.name()
         << ", got others: " << path << '\n'
         << report;
    refuse(plan, text.str(), hint(offered, wanted, options.prefix()));
  }

  // Here tensors of either mode may be written, and no gradient is recorded.
  const c10::InferenceMode inference;
  for (const Copy& copy : plan.copies) copy.to.copy_(copy.from);
  return std::move(report);
}

}  // namespace attn
