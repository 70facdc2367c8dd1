#pragma once

#include <ATen/core/Tensor.h>
#include <attn/export.h>
#include <c10/util/Exception.h>
#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Weight files: TorchScript archives and safetensors, told apart by content, never by suffix.
namespace attn {

/// Tensors with their names, in the order of the file.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The tensors of a weight file, on the CPU and without gradient, usable in training even when read
/// inside InferenceMode.
///
/// TorchScript (`torch.jit.trace` or `script`, then `save`) gives parameters and buffers, in the
/// order of Python's `state_dict()`. An archive whose weights were frozen into constants is refused.
///
/// safetensors gives every tensor, ordered by its place in the data, in any dtype that LibTorch has.
/// Every rule of the format is checked before memory is taken for a tensor; the header may have
/// 100 MB and 127 levels of nesting. Bytes of a bool other than 0 and 1 are read as true.
///
/// @throws WeightsError saying what the file looks like instead: missing, a directory, empty, an
/// HTML page, a Git LFS pointer, a `torch.save` file, a truncated zip archive, …
ATTN_API NamedTensors read_weights(const std::string& path);

/// Options of `load_weights`.
struct ATTN_API LoadOptions {
  /// Only names that begin with this, taken literally ("encoder.layers.0.", the last dot included),
  /// are used, without it.
  TORCH_ARG(std::string, prefix) = "";
  /// Missing and unexpected names are errors; otherwise they are only reported.
  TORCH_ARG(bool, strict) = true;
};

/// A tensor that cannot go into the module's: shapes and dtypes as text, e.g. "[8, 4] float32".
struct ATTN_API Mismatch {
  std::string name, expected, got;
};

/// What `load_weights` did or, inside a WeightsError, why it did nothing.
struct ATTN_API LoadReport {
  /// Names of the module that were filled, in its order; empty when loading failed.
  std::vector<std::string> loaded;
  /// Names of the module that the file lacks.
  std::vector<std::string> missing;
  /// Names of the file, without the prefix, that the module lacks.
  std::vector<std::string> unexpected;
  /// Names that both have, with another shape or dtype.
  std::vector<Mismatch> mismatched;
  /// Whole names of the file that do not begin with the prefix.
  std::vector<std::string> skipped;
};

/// One line of counts, then one line for each missing, unexpected and mismatched name.
ATTN_API std::ostream& operator<<(std::ostream& stream, const LoadReport& report);

/// A file that cannot be read or does not fit.
class ATTN_API WeightsError : public c10::Error {
 public:
  explicit WeightsError(std::string message, LoadReport report = {});
  /// Empty when the file could not be read at all.
  const LoadReport& report() const noexcept { return *report_; }

 private:
  std::shared_ptr<const LoadReport> report_;
};

/// Fills the parameters and buffers of `module` from a file that `read_weights` reads, all of them
/// or none.
///
/// Names must match `named_parameters()` and `named_buffers()`, and so must shapes: nothing is
/// transposed, broadcast or viewed. float16, bfloat16, float32 and float64 convert into each other,
/// rounding to the module's dtype; any other dtype must be the module's own. The module keeps its
/// dtypes, its devices and its `requires_grad`. Everything is checked before the first copy, so a
/// module is untouched when this throws.
///
///     attn::CausalMultiheadAttention layer(64, 4);
///     attn::load_weights(layer, "model.ts", attn::LoadOptions().prefix("encoder.layers.0."));
///
/// @throws WeightsError where the file cannot be read; where the prefix begins none of its names;
/// for any mismatch; and, when strict, for any missing or unexpected name. It lists every such name
/// and, where no name fits, prefixes that would.
ATTN_API LoadReport load_weights(torch::nn::Module& module, const std::string& path,
                                 const LoadOptions& options = {});

/// The same for a module holder, such as `attn::CausalMultiheadAttention` or `torch::nn::Linear`.
template <class Contained>
LoadReport load_weights(const torch::nn::ModuleHolder<Contained>& module, const std::string& path,
                        const LoadOptions& options = {}) {
  return load_weights(*module.ptr(), path, options);
}

}  // namespace attn
