#include <attn/weights.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "weights/atomic_file.h"
#include "weights/formats/format_error.h"
#include "weights/formats/npy.h"
#include "weights/formats/safetensors.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/utf8.h"
#include "weights/mapped_file.h"
#include "weights/packed.h"
#include "weights/save_format.h"
#include "weights/save_torchscript.h"

namespace attn {
namespace {

/// Bytes between two reports of progress.
constexpr std::size_t kStep = 16 << 20;

WeightFormat format_of(const std::string& path, const SaveOptions& options) {
  if (options.format() != WeightFormat::kBySuffix) return options.format();
  const auto format = format_by_suffix(path);
  TORCH_CHECK(format, "[save_weights] path: expected the suffix ", kWrittenSuffixes,
              ", or SaveOptions().format, got ", path);
  return *format;
}

void check_names(const NamedTensors& tensors, WeightFormat format) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK(names.insert(name).second, "[save_weights] tensors: expected each name once, got ",
                formats::in_quotes(name), " twice");
    TORCH_CHECK(formats::is_utf8(name), "[save_weights] tensors: expected names in UTF-8, got ",
                formats::in_quotes(name));
    TORCH_CHECK(format != WeightFormat::kSafetensors || name != "__metadata__",
                "[save_weights] tensors: expected names other than \"__metadata__\", which "
                "safetensors reserves");
  }
  TORCH_CHECK(format != WeightFormat::kNpy || tensors.size() == 1,
              "[save_weights] tensors: expected one for .npy, got ", tensors.size());
}

std::uint64_t bytes_of(const NamedTensors& tensors) {
  std::uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.nbytes();
  return bytes;
}

/// A sink that writes to `file` and reports progress.
formats::Sink sink_to(AtomicFile& file, const SaveOptions::Progress& progress,
                      std::uint64_t total) {
  return [&file, &progress, total, done = std::uint64_t{0}](std::string_view bytes) mutable {
    while (!bytes.empty()) {
      const std::string_view piece = bytes.substr(0, kStep);
      file.write(piece);
      bytes.remove_prefix(piece.size());
      done += piece.size();
      // Headers come on top of the tensors' bytes.
      if (progress) progress(std::min(done, total), total);
    }
  };
}

void write(const NamedTensors& tensors, const std::set<std::string>& buffers, WeightFormat format,
           const SaveOptions& options, const formats::Sink& sink) {
  if (format == WeightFormat::kTorchScript) return write_torchscript(tensors, buffers, sink);
  PackedTensors packed =
      format == WeightFormat::kStateDict ? pack_sharing(tensors) : pack_contiguous(tensors);
  packed.file.metadata = options.metadata();
  if (format == WeightFormat::kStateDict) {
    formats::write_state_dict(packed.file, packed.bytes, sink);
  } else if (format == WeightFormat::kSafetensors) {
    formats::write_safetensors(packed.file, packed.bytes, sink);
  } else if (format == WeightFormat::kNpz) {
    formats::write_npz(packed.file, packed.bytes, sink);
  } else {
    formats::write_npy(packed.file, packed.bytes, sink);
  }
}

void save(const NamedTensors& tensors, const std::set<std::string>& buffers,
          const std::string& path, const SaveOptions& options) {
  const WeightFormat format = format_of(path, options);
  check_names(tensors, format);
  check_savable(tensors);
  AtomicFile file(path);
  const formats::Sink sink = sink_to(file, options.progress(), bytes_of(tensors));
  try {
    write(tensors, buffers, format, options, sink);
  } catch (const formats::FormatError& error) {
    TORCH_CHECK(false, "[save_weights] tensors: ", error.what());
  }
  file.commit();
}

/// Module by module, its parameters before its buffers: the order of Python's state_dict().
void add_state(const torch::nn::Module& module, const std::string& prefix, NamedTensors& tensors,
               std::set<std::string>& buffers) {
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    if (item.value().defined()) tensors.emplace_back(prefix + item.key(), item.value());
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    if (!item.value().defined()) continue;
    tensors.emplace_back(prefix + item.key(), item.value());
    buffers.insert(prefix + item.key());
  }
  for (const auto& child : module.named_children())
    add_state(*child.value(), prefix + child.key() + '.', tensors, buffers);
}

}  // namespace

void save_weights(const NamedTensors& tensors, const std::string& path,
                  const SaveOptions& options) {
  save(tensors, {}, path, options);
}

void save_weights(const torch::nn::Module& module, const std::string& path,
                  const SaveOptions& options) {
  NamedTensors tensors;
  std::set<std::string> buffers;
  add_state(module, "", tensors, buffers);
  save(tensors, buffers, path, options);
}

}  // namespace attn
