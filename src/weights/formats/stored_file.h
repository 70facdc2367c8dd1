#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weights/formats/element_type.h"

/// What every reader makes of the bytes of a file, and what every writer is given.
namespace attn::formats {

/// A range of the file. Tensors that share memory look at one storage.
struct Storage {
  /// Bytes [begin, begin + stored_size) of the file; fewer than `size` where they are deflated.
  std::uint64_t begin = 0;
  std::uint64_t stored_size = 0;
  /// Bytes of the storage itself.
  std::uint64_t size = 0;
  /// Raw deflate (RFC 1951) instead of the bytes themselves.
  bool deflated = false;
  /// Bytes that the deflated stream has before the storage: `inflate(stored, to, skip)`.
  std::uint64_t skip = 0;
  /// Of the `size` bytes, where the file has one.
  std::optional<std::uint32_t> crc32;
  /// Bytes of a number where the file has the other byte order than this machine, else 1.
  std::size_t swap = 1;
};

/// A tensor: elements of a storage. Checked by `check_tensor` before it leaves a reader.
struct StoredTensor {
  std::string name;
  ElementType type = ElementType::kFloat32;
  /// An index into `StoredFile::storages`.
  std::size_t storage = 0;
  /// In elements, as are the strides.
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint64_t> strides;
};

/// A leaf that is no tensor: its joined name and what it is, e.g. "epoch" and "int".
struct SkippedValue {
  std::string name, what;
};

struct StoredFile {
  std::vector<Storage> storages;
  /// In the order of the file.
  std::vector<StoredTensor> tensors;
  std::vector<SkippedValue> skipped;
  /// Unknown classes that were kept as inert values, each once, in the order met.
  std::vector<std::string> opaque;
  /// `__metadata__` of safetensors, in the order of the header.
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Strides of a contiguous tensor, in elements, as LibTorch has them (a size of 0 counts as 1).
/// The product of the sizes must not overflow; see `check_tensor`.
std::vector<std::uint64_t> contiguous_strides(std::span<const std::uint64_t> sizes);

/// Elements of a tensor, or nothing where they are 2^63 or more.
std::optional<std::uint64_t> element_count(std::span<const std::uint64_t> sizes);

/// Checks, without overflow, that the tensor has no more than kMaxDimensions dimensions, as many
/// strides as sizes, that sizes, strides and their extents stay below 2^63, and that every element
/// lies inside the `size` bytes of its storage.
/// @throws FormatError naming the tensor and the rule
void check_tensor(const StoredTensor& tensor, std::uint64_t storage_size);

/// Takes the bytes of a file that is being written, in order.
using Sink = std::function<void(std::string_view bytes)>;

}  // namespace attn::formats
