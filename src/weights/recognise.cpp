#include "weights/recognise.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

#include "weights/known_layers.h"

namespace attn {
namespace {

/// The names of a file, found in an instant.
class Names {
 public:
  explicit Names(const NamedTensors& tensors) {
    places_.reserve(tensors.size());
    sorted_.reserve(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      places_.emplace(tensors[i].first, i);
      sorted_.push_back(tensors[i].first);
    }
    std::ranges::sort(sorted_);
  }

  std::optional<std::size_t> find(std::string_view name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  /// How many begin with it.
  int64_t count(std::string_view prefix) const {
    const auto begin = std::ranges::lower_bound(sorted_, prefix);
    const auto end = std::partition_point(
        begin, sorted_.end(), [&](const auto& name) { return name.starts_with(prefix); });
    return end - begin;
  }

 private:
  std::unordered_map<std::string_view, std::size_t> places_;
  std::vector<std::string_view> sorted_;
};

/// The tensors of a layer in the order of its source; nothing where it has none.
using Places = std::vector<std::optional<std::size_t>>;

RecognisedLayer describe(const KnownLayer& known, const layouts::Sizes& sizes) {
  RecognisedLayer layer{.prefix = "",
                        .module = std::string(known.module),
                        .arguments = {},
                        .layout = std::string(known.layout),
                        .needs_heads = known.needs_heads,
                        .note = std::string(known.note)};
  for (const auto& [name, size, divisor, is_option] : known.arguments) {
    std::optional<int64_t> value;
    if (!size.empty()) value = sizes.at(size) / (divisor.empty() ? 1 : sizes.at(divisor));
    layer.arguments.push_back({std::string(name), value, is_option});
  }
  return layer;
}

class Recogniser {
 public:
  explicit Recogniser(const NamedTensors& tensors)
      : tensors_(tensors), names_(tensors), taken_(tensors.size()) {}

  /// Looks for a layer under every prefix that its first name has.
  void look_for(const KnownLayer& known) {
    const std::string_view first = known.source.tensors.front().name;
    for (const auto& [name, tensor] : tensors_) {
      if (!name.ends_with(first)) continue;
      const std::string prefix = name.substr(0, name.size() - first.size());
      if (prefix.empty() || prefix.ends_with('.')) look_for(known, prefix);
    }
  }

  /// In the order of the file.
  std::vector<RecognisedLayer> layers() && {
    std::vector<RecognisedLayer> layers;
    for (auto& [place, layer] : found_) layers.push_back(std::move(layer));
    return layers;
  }

 private:
  void look_for(const KnownLayer& known, const std::string& prefix) {
    const auto places = gather(known.source, prefix);
    if (!places) return;
    const auto sizes = sizes_of(known.source, *places);
    if (!sizes) return;
    int64_t others = names_.count(prefix);
    for (const auto& place : *places) others -= place ? 1 : 0;
    if (known.alone && others > 0) return;

    std::size_t first = tensors_.size();
    for (const auto& place : *places) {
      if (!place) continue;
      taken_[*place] = true;
      first = std::min(first, *place);
    }
    RecognisedLayer& layer = found_[first] = describe(known, *sizes);
    layer.prefix = prefix;
    layer.others = others;
  }

  /// None where a tensor is missing that the layer always has, or belongs to another.
  std::optional<Places> gather(const layouts::Source& source, const std::string& prefix) const {
    Places places;
    for (const auto& [name, shape, need] : source.tensors) {
      const auto place = names_.find(prefix + std::string(name));
      if (place ? taken_[*place] : need == layouts::Need::kAlways) return std::nullopt;
      places.push_back(place);
    }
    return places;
  }

  std::optional<layouts::Sizes> sizes_of(const layouts::Source& source,
                                         const Places& places) const {
    layouts::Layer layer{&source, {}};
    for (const auto& place : places)
      layer.tensors.push_back(place ? tensors_[*place].second : at::Tensor());
    layouts::Verdict verdict = layouts::judge(layer);
    return verdict.problem.empty() ? std::optional(std::move(verdict.sizes)) : std::nullopt;
  }

  const NamedTensors& tensors_;
  Names names_;
  std::vector<bool> taken_;
  /// By the place of the first tensor.
  std::map<std::size_t, RecognisedLayer> found_;
};

}  // namespace

std::vector<RecognisedLayer> recognise(const NamedTensors& tensors) {
  Recogniser recogniser(tensors);
  for (const KnownLayer& known : known_layers()) recogniser.look_for(known);
  return std::move(recogniser).layers();
}

}  // namespace attn
