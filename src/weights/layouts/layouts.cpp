#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "weights/formats/format_error.h"
#include "weights/layouts/layout.h"

namespace attn {
namespace layouts {
namespace {

/// Names that an error shows as examples.
constexpr std::size_t kExamples = 5;

template <class Range, class ToText>
std::string list(const Range& range, ToText to_text) {
  std::string text;
  for (const auto& item : range) text += (text.empty() ? "" : ", ") + std::string(to_text(item));
  return text;
}

const Layout& find(const std::string& name) {
  const auto found =
      std::ranges::find(all(), name, [](const Layout& layout) { return layout.about.name; });
  TORCH_CHECK(found != all().end(), "[convert_layout] layout: expected one of ",
              list(all(), [](const Layout& layout) { return layout.about.name; }), ", got ",
              formats::in_quotes(name));
  return *found;
}

[[noreturn]] void refuse_names(const Layout& layout, const std::vector<std::string>& strangers) {
  std::string text = list(strangers, [](const auto& name) { return formats::in_quotes(name); });
  if (strangers.size() == kExamples) text += ", …";
  TORCH_CHECK(false, "[convert_layout] tensors: expected the layout ", layout.about.name,
              " alone: ",
              list(layout.source.tensors, [](const SourceTensor& tensor) { return tensor.name; }),
              "; got also ", text);
}

/// The tensors in the order of the source.
Layer sort(const NamedTensors& tensors, const Layout& layout) {
  const auto& expected = layout.source.tensors;
  std::vector<std::string> strangers;
  Layer layer{&layout.source, std::vector<at::Tensor>(expected.size())};
  std::vector<bool> seen(expected.size());
  std::string twice;
  for (const auto& [whole, tensor] : tensors) {
    std::string_view name = whole;
    if (name.starts_with(layout.optional_prefix)) name.remove_prefix(layout.optional_prefix.size());
    const auto found = std::ranges::find(expected, name, &SourceTensor::name);
    if (found == expected.end()) {
      strangers.push_back(whole);
      if (strangers.size() == kExamples) break;
      continue;
    }
    const auto place = found - expected.begin();
    if (seen[place]) twice = name;
    seen[place] = true;
    layer.tensors[place] = tensor;
  }
  if (!strangers.empty()) refuse_names(layout, strangers);
  TORCH_CHECK(twice.empty(), "[convert_layout] tensors: expected every name once, got ", twice,
              " twice");
  return layer;
}

void check_heads(const Layout& layout, const Sizes& sizes, int64_t n_heads) {
  TORCH_CHECK(n_heads > 0 || (n_heads == 0 && !layout.needs_heads),
              "[convert_layout] n_heads: expected ",
              layout.needs_heads ? "the number of heads, which the shapes of the layout " +
                                       layout.about.name + " do not tell"
                                 : "0 or more",
              ", got ", n_heads);
  if (n_heads == 0) return;
  const int64_t width = sizes.at(layout.split);
  TORCH_CHECK(width % n_heads == 0, "[convert_layout] n_heads: expected a divisor of ",
              layout.split, " = ", width, ", got ", n_heads);
  const auto told = sizes.find("H");
  TORCH_CHECK(told == sizes.end() || told->second == n_heads, "[convert_layout] n_heads: expected ",
              told->second, " (from ", layout.source.tensors.front().name, ") or 0, got ", n_heads);
}

}  // namespace

const std::vector<Layout>& all() {
  static const std::vector<Layout> layouts = {
      attention_learn_to_route(), bert(),           gpt2(), gpt_neox(), llama(), nanogpt(),
      to_torch_multihead(),       torch_multihead()};
  return layouts;
}

}  // namespace layouts

const std::vector<WeightLayout>& weight_layouts() {
  static const std::vector<WeightLayout> layouts = [] {
    std::vector<WeightLayout> abouts;
    for (const layouts::Layout& layout : layouts::all()) abouts.push_back(layout.about);
    return abouts;
  }();
  return layouts;
}

NamedTensors convert_layout(const NamedTensors& tensors, const std::string& layout,
                            int64_t n_heads) {
  const layouts::Layout& known = layouts::find(layout);
  const layouts::Layer layer = layouts::sort(tensors, known);
  const auto [sizes, problem] = layouts::judge(layer);
  TORCH_CHECK(problem.empty(), "[convert_layout] tensors: ", problem, " (layout ", layout, ")");
  layouts::check_heads(known, sizes, n_heads);
  const at::NoGradGuard no_grad;
  NamedTensors converted = known.convert({layer, sizes, n_heads});
  for (auto& [name, tensor] : converted) tensor = tensor.detach();
  return converted;
}

}  // namespace attn
