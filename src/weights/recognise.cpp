#include "weights/recognise.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "weights/known_layers.h"

namespace attn {
namespace {

struct Name {
  std::string_view name;
  /// Which tensor of the file.
  std::size_t place;
};

/// Sorted rather than hashed: no file can make a search slow.
std::vector<Name> sorted_names(const NamedTensors& tensors) {
  std::vector<Name> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) names.push_back({tensors[i].first, i});
  std::ranges::stable_sort(names, {}, &Name::name);
  return names;
}

/// Those that begin with the prefix.
std::span<const Name> under(std::span<const Name> names, std::string_view prefix) {
  const auto begin = std::ranges::lower_bound(names, prefix, {}, &Name::name);
  const auto end = std::partition_point(
      begin, names.end(), [&](const Name& each) { return each.name.starts_with(prefix); });
  return {begin, end};
}

std::optional<std::size_t> find(std::span<const Name> names, std::string_view name) {
  const auto found = std::ranges::lower_bound(names, name, {}, &Name::name);
  return found != names.end() && found->name == name ? std::optional(found->place) : std::nullopt;
}

/// Places of a layer's tensors, in the order of its source; nothing where it has none.
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
      : tensors_(tensors), names_(sorted_names(tensors)), taken_(tensors.size()) {}

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
    const std::span<const Name> names = under(names_, prefix);
    const auto places = gather(known.source, prefix, names);
    if (!places) return;
    auto others = std::ssize(names);
    for (const auto& place : *places) others -= place ? 1 : 0;
    if (known.alone && others > 0) return;
    const auto sizes = sizes_of(known.source, *places);
    if (!sizes) return;

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
  std::optional<Places> gather(const layouts::Source& source, const std::string& prefix,
                               std::span<const Name> names) const {
    Places places;
    for (const auto& [name, shape, need] : source.tensors) {
      const auto place = find(names, prefix + std::string(name));
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
  std::vector<Name> names_;
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
