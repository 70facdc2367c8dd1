#pragma once

#include <string_view>
#include <vector>

#include "weights/layouts/source.h"

namespace attn {

/// How the sizes of a file tell an argument: one size, or two divided, or not at all.
struct KnownArgument {
  std::string_view name;
  std::string_view size = "", divisor = "";
  /// Of the module's options, with a default; else of its constructor.
  bool is_option = false;
};

/// A layer that `recognise` knows: the names and shapes of its weights, and what takes them.
struct KnownLayer {
  /// "attn::CausalMultiheadAttention"; "" where no module takes the weights.
  std::string_view module;
  std::vector<KnownArgument> arguments;
  layouts::Source source;
  /// Of `convert_layout`; "" where the module takes the weights as they are.
  std::string_view layout = "";
  /// What the layout's name needs beside the tensors: `n_heads` of `convert_layout`.
  bool needs_heads = false;
  /// Where other tensors under the same prefix mean another layer: layouts, since these have
  /// variants, and names that are common.
  bool alone = true;
  /// What the reader must know.
  std::string_view note = "";
};

/// In the order in which they claim tensors.
const std::vector<KnownLayer>& known_layers();

}  // namespace attn
