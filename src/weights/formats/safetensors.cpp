#include "weights/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "weights/formats/format_error.h"
#include "weights/formats/little_endian.h"
#include "weights/formats/safetensors_json.h"

namespace attn::formats {
namespace {

struct Spelling {
  ElementType type;
  std::string_view name;
};

constexpr std::array kSpellings = {
    Spelling{ElementType::kBool, "BOOL"},
    Spelling{ElementType::kFloat4E2M1, "F4"},
    Spelling{ElementType::kFloat6E2M3, "F6_E2M3"},
    Spelling{ElementType::kFloat6E3M2, "F6_E3M2"},
    Spelling{ElementType::kUInt8, "U8"},
    Spelling{ElementType::kInt8, "I8"},
    Spelling{ElementType::kFloat8E5M2, "F8_E5M2"},
    Spelling{ElementType::kFloat8E4M3, "F8_E4M3"},
    Spelling{ElementType::kFloat8E8M0, "F8_E8M0"},
    Spelling{ElementType::kFloat8E4M3Fnuz, "F8_E4M3FNUZ"},
    Spelling{ElementType::kFloat8E5M2Fnuz, "F8_E5M2FNUZ"},
    Spelling{ElementType::kInt16, "I16"},
    Spelling{ElementType::kUInt16, "U16"},
    Spelling{ElementType::kFloat16, "F16"},
    Spelling{ElementType::kBFloat16, "BF16"},
    Spelling{ElementType::kInt32, "I32"},
    Spelling{ElementType::kUInt32, "U32"},
    Spelling{ElementType::kFloat32, "F32"},
    Spelling{ElementType::kComplex64, "C64"},
    Spelling{ElementType::kFloat64, "F64"},
    Spelling{ElementType::kInt64, "I64"},
    Spelling{ElementType::kUInt64, "U64"},
};

/// "F32 [2, 4]"
std::string type_text(const SafetensorsEntry& entry) {
  std::string text = std::string(*safetensors_dtype(entry.type)) + " [";
  for (std::size_t i = 0; i < entry.shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(entry.shape[i]);
  return text + "]";
}

[[noreturn]] void refuse(const SafetensorsEntry& entry, const std::string& rule) {
  throw FormatError("tensor " + in_quotes(entry.name) + ": " + rule);
}

std::uint64_t byte_size(const SafetensorsEntry& entry) {
  std::uint64_t bits = bits_of(entry.type);
  std::uint64_t elements = 1;
  // Dimension by dimension, as the Python package does: a zero does not excuse an overflow before
  // it.
  bool overflow = false;
  for (const std::uint64_t size : entry.shape)
    overflow |= __builtin_mul_overflow(elements, size, &elements);
  if (overflow || __builtin_mul_overflow(elements, bits, &bits)) {
    refuse(entry, "expected a size below 2^64 bits, got " + type_text(entry));
  }
  if (bits % 8 != 0) refuse(entry, "expected whole bytes, got " + type_text(entry));
  return bits / 8;
}

void check_places(const std::vector<SafetensorsEntry>& tensors, std::uint64_t data_size) {
  std::uint64_t next = 0;
  for (const SafetensorsEntry& entry : tensors) {
    const std::string offsets =
        "data_offsets [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
    if (entry.end < entry.begin) refuse(entry, "expected begin <= end, got " + offsets);
    if (entry.begin != next) {
      refuse(entry, "expected its data at byte " + std::to_string(next) +
                        ", without hole or overlap, got " + offsets);
    }
    if (const std::uint64_t size = byte_size(entry); entry.end - entry.begin != size) {
      refuse(entry, "expected " + std::to_string(size) + " bytes for " + type_text(entry) +
                        ", got " + offsets);
    }
    next = entry.end;
  }
  if (next != data_size) {
    throw FormatError("data: expected " + std::to_string(next) +
                      " bytes, as the header says, got " + std::to_string(data_size));
  }
}

}  // namespace

std::optional<std::string_view> safetensors_dtype(ElementType type) {
  const auto* spelling = std::ranges::find(kSpellings, type, &Spelling::type);
  if (spelling == kSpellings.end()) return std::nullopt;
  return spelling->name;
}

std::optional<ElementType> safetensors_type(std::string_view name) {
  const auto* spelling = std::ranges::find(kSpellings, name, &Spelling::name);
  if (spelling == kSpellings.end()) return std::nullopt;
  return spelling->type;
}

std::uint64_t safetensors_header_length(std::string_view start, std::uint64_t file_size) {
  if (start.size() < kSafetensorsLengthBytes || file_size < kSafetensorsLengthBytes) {
    throw FormatError("header length: expected 8 bytes, got " + std::to_string(start.size()));
  }
  const std::uint64_t length = little_endian(start, 0, kSafetensorsLengthBytes);
  const std::uint64_t most = std::min(kSafetensorsMaxHeader, file_size - kSafetensorsLengthBytes);
  if (length > most) {
    throw FormatError("header length: expected at most " + std::to_string(most) + ", got " +
                      std::to_string(length));
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_size) {
  SafetensorsHeader header = read_safetensors_json(json);
  std::ranges::stable_sort(header.tensors, {},
                           [](const SafetensorsEntry& e) { return std::tuple(e.begin, e.end); });
  check_places(header.tensors, data_size);
  return header;
}

bool begins_like_safetensors(std::string_view start) {
  return start.size() > kSafetensorsLengthBytes && start[kSafetensorsLengthBytes] == '{' &&
         start.substr(4, 4) == std::string_view("\0\0\0\0", 4);
}

StoredFile read_safetensors(std::string_view file) {
  const std::uint64_t length =
      safetensors_header_length(file.substr(0, kSafetensorsLengthBytes), file.size());
  const std::uint64_t data_begin = kSafetensorsLengthBytes + length;
  SafetensorsHeader header = parse_safetensors_header(file.substr(kSafetensorsLengthBytes, length),
                                                      file.size() - data_begin);
  StoredFile result;
  result.metadata = std::move(header.metadata);
  for (SafetensorsEntry& entry : header.tensors) {
    const std::uint64_t size = entry.end - entry.begin;
    StoredTensor tensor;
    tensor.name = std::move(entry.name);
    tensor.type = entry.type;
    tensor.storage = result.storages.size();
    tensor.sizes = std::move(entry.shape);
    if (!element_count(tensor.sizes)) {
      throw FormatError("tensor " + in_quotes(tensor.name) +
                        ": expected sizes below 2^63, got larger ones");
    }
    tensor.strides = contiguous_strides(tensor.sizes);
    check_tensor(tensor, size);
    Storage& storage = result.storages.emplace_back();
    storage.begin = data_begin + entry.begin;
    storage.stored_size = storage.size = size;
    result.tensors.push_back(std::move(tensor));
  }
  return result;
}

}  // namespace attn::formats
