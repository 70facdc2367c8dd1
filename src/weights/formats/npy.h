#pragma once

#include <span>
#include <string_view>

#include "weights/formats/stored_file.h"
#include "weights/formats/zip.h"

/// NumPy's .npy, version 1 to 3 (https://numpy.org/neps/nep-0001-npy-format.html), and .npz, a zip
/// archive of them.
namespace attn::formats {

/// Whether the first bytes of a file are those of a .npy file.
bool begins_like_npy(std::string_view start);

/// A .npy file: one tensor, with the empty name. Fortran order gives strides; the other byte order
/// gives `swap`. Structured, object, string and time types are refused by name. Bytes behind the
/// array, such as a second one, are not looked at, as by `numpy.load`.
/// @throws FormatError
StoredFile read_npy(std::string_view file);

/// A .npz file: one tensor for each record NAME.npy, called NAME, which the array must fill. Other
/// records are listed as skipped.
/// @throws FormatError
StoredFile read_npz(std::string_view file, const ZipArchive& archive);

/// Writes tensors, which must be contiguous: `storages[i]` are the bytes of `file.storages[i]`, in
/// this machine's byte order. The bytes of an array are those that NumPy writes.
/// @throws FormatError for a dtype that NumPy lacks; `write_npy` also unless there is one tensor
void write_npy(const StoredFile& file, std::span<const std::string_view> storages,
               const Sink& sink);
void write_npz(const StoredFile& file, std::span<const std::string_view> storages,
               const Sink& sink);

}  // namespace attn::formats
