#include "weights/layouts/source.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

namespace attn::layouts {
namespace {

template <class... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

std::string_view dtype_of(const at::Tensor& tensor) {
  return c10::getDtypeNames(tensor.scalar_type()).first;
}

struct Size {
  int64_t factor;
  std::string_view symbol;
};

/// "[3·E, E]" → {3, "E"}, {1, "E"}
std::vector<Size> parse(std::string_view shape) {
  constexpr std::string_view kTimes = "·", kBetween = ", ";
  std::vector<Size> sizes;
  shape = shape.substr(1, shape.size() - 2);
  while (!shape.empty()) {
    std::string_view size = shape.substr(0, shape.find(kBetween));
    shape.remove_prefix(std::min(shape.size(), size.size() + kBetween.size()));
    int64_t factor = 1;
    if (size.front() >= '0' && size.front() <= '9') {
      factor = size.front() - '0';
      size.remove_prefix(1 + kTimes.size());
    }
    sizes.push_back({factor, size});
  }
  return sizes;
}

/// Whether the shape is the one in letters; learns the sizes behind them.
bool agrees(at::IntArrayRef shape, const std::vector<Size>& letters, Sizes& known) {
  if (letters.size() != shape.size()) return false;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const auto [factor, symbol] = letters[i];
    if (shape[i] < 1 || shape[i] % factor != 0) return false;
    const int64_t size = shape[i] / factor;
    if (known.emplace(symbol, size).first->second != size) return false;
  }
  return true;
}

/// " with E = 768, H = 12": the letters that were known ahead of the tensor.
std::string known_letters(const std::vector<Size>& letters, const Sizes& known) {
  std::string text;
  Sizes told;
  for (const auto& [factor, symbol] : letters) {
    const auto found = known.find(symbol);
    if (found == known.end() || !told.insert(*found).second) continue;
    text += text_of(text.empty() ? " with " : ", ", symbol, " = ", found->second);
  }
  return text;
}

/// What keeps a tensor from being a weight beside the first of its layer, or "".
std::string unusable(std::string_view name, const at::Tensor& tensor, const Layer& layer) {
  const at::Tensor& first = layer.tensors.front();
  const std::string_view from = layer.source->tensors.front().name;
  if (tensor.layout() != at::kStrided)
    return text_of("expected ", name, " dense, got layout ", tensor.layout());
  if (!tensor.is_floating_point())
    return text_of("expected ", name, " of a floating dtype, got ", dtype_of(tensor));
  if (tensor.scalar_type() != first.scalar_type())
    return text_of("expected ", name, " of ", dtype_of(first), " (from ", from, "), got ",
                   dtype_of(tensor));
  if (tensor.device() != first.device())
    return text_of("expected ", name, " on ", first.device(), " (from ", from, "), got ",
                   tensor.device());
  return "";
}

/// What keeps a tensor from having the shape in letters, or ""; learns the sizes behind them.
std::string misshapen(const SourceTensor& expected, const at::Tensor& tensor, Sizes& known) {
  const std::vector<Size> letters = parse(expected.shape);
  const Sizes before = known;
  if (agrees(tensor.sizes(), letters, known)) return "";
  return text_of("expected ", expected.name, ' ', expected.shape, known_letters(letters, before),
                 ", got ", tensor.sizes());
}

/// Whether tensors are missing: those that are always there, and biases without the others.
std::string missing(const Layer& layer) {
  const auto& expected = layer.source->tensors;
  const SourceTensor* some_bias = nullptr;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].need == Need::kWithBias && layer.tensors[i].defined()) some_bias = &expected[i];
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, shape, need] = expected[i];
    if (layer.tensors[i].defined()) continue;
    if (need == Need::kAlways) return text_of("expected ", name, ' ', shape, ", got none");
    if (need == Need::kWithBias && some_bias)
      return text_of("expected ", name, ' ', shape, " beside ", some_bias->name, ", got none");
  }
  return "";
}

}  // namespace

const at::Tensor& Layer::operator[](std::string_view name) const {
  const auto found = std::ranges::find(source->tensors, name, &SourceTensor::name);
  TORCH_INTERNAL_ASSERT(found != source->tensors.end());
  return tensors[found - source->tensors.begin()];
}

Verdict judge(const Layer& layer) {
  Verdict verdict{.sizes = {}, .problem = missing(layer)};
  for (std::size_t i = 0; verdict.problem.empty() && i < layer.tensors.size(); ++i) {
    const at::Tensor& tensor = layer.tensors[i];
    const SourceTensor& expected = layer.source->tensors[i];
    if (!tensor.defined() || expected.need == Need::kLeftOut) continue;
    verdict.problem = unusable(expected.name, tensor, layer);
    if (verdict.problem.empty()) verdict.problem = misshapen(expected, tensor, verdict.sizes);
  }
  if (verdict.problem.empty() && layer.source->broken_rule)
    verdict.problem = layer.source->broken_rule(verdict.sizes);
  return verdict;
}

}  // namespace attn::layouts
