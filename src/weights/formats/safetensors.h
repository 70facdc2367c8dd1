#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attn::formats {

/// Element types of safetensors 0.8.
enum class SafetensorsDtype {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// The type as the format spells it, e.g. "BF16".
std::string_view dtype_name(SafetensorsDtype dtype);
/// The type that the format spells `name`; nothing for a spelling that it does not know.
std::optional<SafetensorsDtype> dtype_named(std::string_view name);

/// A tensor of the header; its bytes are [begin, end) of the data, which starts after the header.
struct SafetensorsEntry {
  std::string name;
  SafetensorsDtype dtype = SafetensorsDtype::kBool;
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

}  // namespace attn::formats
