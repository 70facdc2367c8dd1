#pragma once

#include <attn/export.h>
#include <attn/weights.h>

#include <optional>
#include <string>
#include <vector>

namespace attn {

/// An argument of a constructor, where the file tells it.
struct ATTN_API RecognisedArgument {
  std::string name;
  std::optional<int64_t> value;
  /// Of the module's options, with a default; else of its constructor.
  bool is_option = false;
};

/// An attention layer whose weights a file holds.
struct ATTN_API RecognisedLayer {
  /// What its names begin with, as `LoadOptions::prefix` takes it.
  std::string prefix;
  /// "attn::ProjectedMultiheadAttention", or "" where no module takes the weights.
  std::string module;
  std::vector<RecognisedArgument> arguments;
  /// The layout that makes them the module's, or "".
  std::string layout;
  /// Whether that layout must be told the heads.
  bool needs_heads = false;
  /// What the reader must know, or "".
  std::string note;
  /// Tensors under the prefix that are not the layer's.
  int64_t others = 0;

  /// "ProjectedMultiheadAttention(128, n_heads ?)", or the same of the layout where no module takes
  /// the weights.
  std::string title() const;
  /// The lines of C++ that load it from a file.
  std::string code(const std::string& path) const;
};

/// The attention layers that a file holds, in its order: every prefix under which all names of a
/// module or of a layout lie, with shapes that agree. A tensor belongs to one of them. Nearly linear
/// in the number and length of the names.
///
/// A `project_out.weight` is a PreprojectedMultiheadAttention where it is the only tensor under its
/// prefix; anywhere else the name says too little. So must the tensors of a layout be the only ones,
/// buffers and LayerNorm aside, since others make another layer (q_norm, LoRA).
ATTN_API std::vector<RecognisedLayer> recognise(const NamedTensors& tensors);

}  // namespace attn
