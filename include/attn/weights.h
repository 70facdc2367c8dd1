#pragma once

#include <ATen/core/Tensor.h>
#include <attn/export.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/arg.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// Weight files, in and out, told apart by content, never by suffix.
namespace attn {

/// Tensors with their names, in the order of the file.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Options of `load_weights`, `read_weights` and `read_weight_file`.
struct ATTN_API LoadOptions {
  /// Only names that begin with this, taken literally ("encoder.layers.0.", the last dot included),
  /// are used, without it.
  TORCH_ARG(std::string, prefix) = "";
  /// `load_weights`: missing and unexpected names are errors; otherwise they are only reported.
  TORCH_ARG(bool, strict) = true;
  /// `load_weights`: the name of a layout that the file has and the module has not, e.g.
  /// "attention-learn-to-route"; see `weight_layouts()`. Empty: the module's own names and shapes.
  TORCH_ARG(std::string, layout) = "";
  /// Heads, for the layouts that cannot know them from the shapes; 0: not given.
  TORCH_ARG(int64_t, n_heads) = 0;
  /// `torch.save` files: classes that are not known become inert values, listed as skipped, instead
  /// of being refused. Nothing of them runs either way.
  TORCH_ARG(bool, opaque) = false;
  /// Where the tensors of `read_weights` go, whatever device they were saved from.
  TORCH_ARG(at::Device, device) = at::Device(at::kCPU);
};

/// A leaf of a file that is no tensor, or a tensor that was not asked for: its whole name and what it
/// is, e.g. "epoch" and "int".
struct ATTN_API SkippedEntry {
  std::string name, what;
  bool is_tensor = false;
};

/// What a weight file holds.
struct ATTN_API WeightFile {
  /// "safetensors", "state_dict", "legacy state_dict", "TorchScript", "torch.export", "npz", "npy",
  /// or "sharded" and the shards' format.
  std::string format;
  NamedTensors tensors;
  std::vector<SkippedEntry> skipped;
  /// Classes that were kept as inert values (`LoadOptions::opaque`).
  std::vector<std::string> opaque;
  /// `__metadata__` of safetensors.
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Reads a weight file: its tensors without gradient, usable in training even when read inside
/// InferenceMode.
///
/// | format | read |
/// |---|---|
/// | `torch.save` (.pt, .pth, .bin, .ckpt), zip and legacy | every tensor; nested names joined by dots |
/// | safetensors | every tensor, in the order of the data |
/// | TorchScript | parameters and buffers, in the order of Python's `state_dict()` |
/// | `torch.export` (.pt2) | parameters and buffers |
/// | `*.index.json` of Hugging Face | the tensors of all shards |
/// | .npz, .npy | every array; that of a .npy file has the empty name |
///
/// Files are mapped privately: tensors look at the file's pages, and writing to one changes neither
/// the file nor another reader. The mapping lives as long as its tensors, a replaced or deleted file
/// included; a file that is shortened or overwritten in place meanwhile takes its tensors with it.
/// Tensors that share memory in the file share it here. Checksums, bounds and byte order are
/// checked, and limits (docs/weights.md) before memory is taken. Nothing in a file is
/// ever run. Bytes of a bool other than 0 and 1 are read as true.
///
/// @throws WeightsError saying what is wrong, or what the file looks like instead: missing, a
/// directory, empty, an HTML page, a Git LFS pointer, a truncated zip archive, …
ATTN_API WeightFile read_weight_file(const std::string& path, const LoadOptions& options = {});

/// The tensors of `read_weight_file`.
ATTN_API NamedTensors read_weights(const std::string& path, const LoadOptions& options = {});

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
  /// Whole names of the file that were not used: they do not begin with the prefix, or are no
  /// tensors, then with what they are: "epoch (int)".
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

/// A layout of the weights of one attention layer under other names and shapes than the module's.
struct ATTN_API WeightLayout {
  /// As `LoadOptions::layout` and `attn convert --layout` take it.
  std::string name;
  /// Whose weights they are, and what they become: a module, or the names of a documented map.
  std::string from, to;
};

/// Every layout that is known, by name.
ATTN_API const std::vector<WeightLayout>& weight_layouts();

/// The weights of one layer in another layout: `tensors` has exactly the names of
/// `layout`'s source (`W_query`, `W_key`, …), the result those of its target. `n_heads` is needed
/// where the shapes do not tell it.
/// @throws c10::Error naming the layout, the tensor, and the shape that was expected
ATTN_API NamedTensors convert_layout(const NamedTensors& tensors, const std::string& layout,
                                     int64_t n_heads = 0);

/// File formats that `save_weights` writes.
enum class WeightFormat {
  /// .safetensors; .pt, .pth, .bin, .ckpt: kStateDict; .ts: kTorchScript; .npz; .npy.
  kBySuffix,
  kSafetensors,
  /// A `torch.save` of a state_dict, as `torch.load(weights_only=True)` and
  /// `load_state_dict(strict=True)` take it.
  kStateDict,
  /// A TorchScript module without methods, whose submodules are named by the dots.
  kTorchScript,
  kNpz,
  /// A single tensor, whose name the file does not keep.
  kNpy,
};

/// Options of `save_weights`.
struct ATTN_API SaveOptions {
  using Metadata = std::vector<std::pair<std::string, std::string>>;
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  TORCH_ARG(WeightFormat, format) = WeightFormat::kBySuffix;
  /// `__metadata__` of safetensors; other formats have no place for it.
  TORCH_ARG(Metadata, metadata);
  /// Called now and then with the bytes written and the bytes in all.
  TORCH_ARG(Progress, progress);
};

/// Writes tensors to a file, in their order, from any device.
///
/// Tensors that share memory share it in a state_dict and in TorchScript; other formats get copies.
/// A state_dict keeps strides. The file is written beside `path` under a temporary name, synced and
/// renamed: a full disk, an error or a kill leaves the old file whole.
///
/// @throws c10::Error for a name that is there twice or no UTF-8, for tensors that are not dense,
/// for dtypes that the format lacks, and for names that TorchScript cannot have; WeightsError where
/// the file cannot be written
ATTN_API void save_weights(const NamedTensors& tensors, const std::string& path,
                           const SaveOptions& options = {});

/// Writes the parameters and buffers of a module, in the order of Python's `state_dict()`.
ATTN_API void save_weights(const torch::nn::Module& module, const std::string& path,
                           const SaveOptions& options = {});

/// The same for a module holder.
template <class Contained>
void save_weights(const torch::nn::ModuleHolder<Contained>& module, const std::string& path,
                  const SaveOptions& options = {}) {
  save_weights(*module.ptr(), path, options);
}

}  // namespace attn
