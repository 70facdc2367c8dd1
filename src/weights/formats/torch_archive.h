#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "weights/formats/stored_file.h"
#include "weights/formats/torch_pickle.h"
#include "weights/formats/zip.h"

namespace attn::formats {

/// The record of this name in the folder of an archive's first record, or nullptr.
const ZipRecord* find_beside_first(const ZipArchive& archive, std::string_view name);

/// A zip archive of PyTorch: its records lie in one folder, that of the first record.
class TorchArchive {
 public:
  /// @throws FormatError where the first record lies in no folder, or the byte order is not known
  explicit TorchArchive(const ZipArchive& archive);

  /// The record of this name inside the folder, or nullptr.
  const ZipRecord* find(std::string_view name) const;
  /// @throws FormatError where the record is missing, larger than `most` or damaged
  std::string read(std::string_view name, std::uint64_t most) const;
  const ZipArchive& zip() const { return archive_; }
  /// The folder, with its '/'.
  const std::string& folder() const { return folder_; }
  /// Whether numbers have the other byte order than this machine.
  bool swapped() const { return swapped_; }

 private:
  const ZipArchive& archive_;
  std::string folder_;
  bool swapped_ = false;
};

/// The storages of an archive that tensors use, as records of one of its folders.
class ArchiveStorages {
 public:
  /// `records`: the folder, e.g. "data/". Storages are added to `file`.
  ArchiveStorages(const TorchArchive& archive, std::string records, StoredFile& file)
      : archive_(archive), records_(std::move(records)), file_(file) {}

  /// `type`: the elements of the tensor that asks for it, whose bytes are swapped where an untyped
  /// storage has the other byte order.
  /// @throws FormatError where the record is missing or too small
  PlacedStorage place(const TorchStorage& storage, ElementType type);

 private:
  const TorchArchive& archive_;
  std::string records_;
  StoredFile& file_;
  std::map<std::string, std::size_t, std::less<>> placed_;
};

/// Bytes of `elements` elements of a storage.
/// @throws FormatError where they are 2^63 or more
std::uint64_t byte_size(const TorchStorage& storage, std::uint64_t elements);

/// What tensors may see of a storage of `elements` elements: all of it, or up to the end of a view.
/// @throws FormatError where the view reaches outside
PlacedStorage placed(const TorchStorage& storage, std::size_t index, std::uint64_t elements);

}  // namespace attn::formats
