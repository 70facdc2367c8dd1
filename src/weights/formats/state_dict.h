#pragma once

#include <span>
#include <string_view>

#include "weights/formats/stored_file.h"
#include "weights/formats/zip.h"

/// Files of `torch.save`: a zip archive since PyTorch 1.6, a row of pickles and storages before.
namespace attn::formats {

struct StateDictOptions {
  /// Unknown classes become inert values and are listed, instead of being refused by name.
  bool opaque = false;
};

/// Whether the first bytes of a file are those of a pickle, as legacy files begin.
bool begins_like_pickle(std::string_view start);
/// Whether the first bytes of a file, 262 at least, are those of a tar archive, as torch.save wrote
/// before PyTorch 0.2. Nothing reads these.
bool begins_like_torch_tar(std::string_view start);

/// The tensors of a checkpoint: names of nested dicts joined by dots ("model.encoder.weight"),
/// elements of lists and tuples by their number. Leaves that are no tensors are listed as skipped.
///
/// Known, and inert, are dict, OrderedDict, list, tuple, set, str, bytes, int, float, bool, None,
/// torch.Size, dtypes, devices, numpy scalars, argparse.Namespace, parameters, and typed and untyped
/// storages of any device. Tensors must be dense and strided. Byte order is honoured.
/// @throws FormatError naming the class, tensor or record
StoredFile read_state_dict(std::string_view file, const ZipArchive& archive,
                           const StateDictOptions& options = {});
StoredFile read_legacy_state_dict(std::string_view file, const StateDictOptions& options = {});

/// Writes what `torch.save(state_dict, path)` would: an OrderedDict that
/// `torch.load(weights_only=True)` reads. `storages[i]` are the bytes of `file.storages[i]`; tensors
/// keep their strides and share storages as given.
/// @throws FormatError for a dtype that PyTorch cannot hold
void write_state_dict(const StoredFile& file, std::span<const std::string_view> storages,
                      const Sink& sink);

}  // namespace attn::formats
