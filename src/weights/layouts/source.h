#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

/// The weights of an attention layer as files hold them: names, and shapes in letters.
namespace attn::layouts {

/// Whether a layer has a tensor.
enum class Need {
  kAlways,
  /// All tensors of this kind, or none.
  kWithBias,
  /// On its own, or not at all.
  kOptional,
  /// Left out, whatever its shape: buffers, and what belongs to the layer's surroundings.
  kLeftOut,
};

struct SourceTensor {
  std::string_view name;
  /// "[3·E, E]": sizes, each a symbol or a digit times a symbol. A symbol stands for the same size
  /// throughout a source.
  std::string_view shape;
  Need need = Need::kAlways;
};

/// The sizes behind the symbols.
using Sizes = std::map<std::string_view, int64_t>;

/// What a layer is known by.
struct Source {
  /// The first is one that it always has.
  std::vector<SourceTensor> tensors;
  /// What else must hold of the sizes: says what does not, "expected …, got …", or "".
  std::string (*broken_rule)(const Sizes& sizes) = nullptr;
};

/// The tensors of one layer.
struct Layer {
  const Source* source;
  /// In the order of the source; undefined where the layer has none.
  std::vector<at::Tensor> tensors;

  /// The tensor of that name, undefined where the layer has none.
  const at::Tensor& operator[](std::string_view name) const;
};

/// What the layer's shapes say, and what about it does not fit its source.
struct Verdict {
  Sizes sizes;
  /// "expected …, got …", or "": then every tensor that is needed is there, and all are dense, of
  /// one floating dtype, on one device and of shapes that agree.
  std::string problem;
};

Verdict judge(const Layer& layer);

}  // namespace attn::layouts
