#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weights/formats/stored_file.h"

namespace attn::formats {

/// The type as the format spells it, e.g. "BF16"; nothing for a type that it lacks.
std::optional<std::string_view> safetensors_dtype(ElementType type);
/// The type that the format (safetensors 0.8) spells `name`; nothing for a spelling that it does not
/// know.
std::optional<ElementType> safetensors_type(std::string_view name);

/// A tensor of the header; its bytes are [begin, end) of the data, which starts after the header.
struct SafetensorsEntry {
  std::string name;
  ElementType type = ElementType::kBool;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  /// `__metadata__`, in the order of the header.
  std::vector<std::pair<std::string, std::string>> metadata;
  /// In the order of the data.
  std::vector<SafetensorsEntry> tensors;
};

/// Bytes before the header, which hold its length.
inline constexpr std::size_t kSafetensorsLengthBytes = 8;

/// Whether the first bytes of a file, nine at least, are a plausible header length and the first byte
/// of a header.
bool begins_like_safetensors(std::string_view start);
/// The longest header, in bytes.
inline constexpr std::uint64_t kSafetensorsMaxHeader = 100'000'000;
/// The deepest nesting of objects and arrays in a header.
inline constexpr std::size_t kSafetensorsMaxDepth = 127;

/// The header's length as the first bytes of the file declare it; it fits the limit and the file.
/// @throws FormatError
std::uint64_t safetensors_header_length(std::string_view start, std::uint64_t file_size);

/// Reads the JSON header of a file with `data_size` bytes behind it. The tensors of the result fill
/// the data exactly, one after the other, and each has the bytes of its shape and dtype.
///
/// The verdict is that of the Python package safetensors 0.8.0, except that these, which the format
/// forbids or does not know and the package tolerates, are refused: a name twice, whitespace before
/// the first '{', and a tensor or a dtype that is spelled as another kind of JSON value than an
/// object and a string.
/// @throws FormatError naming the tensor and the rule
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_size);

/// A safetensors file: a storage for each tensor, in the order of the data. Beyond the header's rules a
/// tensor must have at most kMaxDimensions dimensions and fewer than 2^63 elements and bits, where a
/// size of 0 counts as 1.
/// @throws FormatError
StoredFile read_safetensors(std::string_view file);

/// Writes `file`, whose tensors must be contiguous and have a storage each: `storages[i]` are the
/// bytes of `file.storages[i]`. The data begins at a multiple of 64 bytes, and tensors lie in it by
/// falling element size, else in their order, so that each is aligned for its type.
/// @throws FormatError for a type that the format lacks, or a name that is no UTF-8
void write_safetensors(const StoredFile& file, std::span<const std::string_view> storages,
                       const Sink& sink);

}  // namespace attn::formats
