#include "weights/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "weights/formats/format_error.h"
#include "weights/formats/safetensors_json.h"

namespace attn::formats {
namespace {

struct DtypeRow {
  SafetensorsDtype dtype;
  std::string_view name;
  std::uint64_t bits;
};

constexpr std::array kDtypes = {
    DtypeRow{SafetensorsDtype::kBool, "BOOL", 8},
    DtypeRow{SafetensorsDtype::kF4, "F4", 4},
    DtypeRow{SafetensorsDtype::kF6E2M3, "F6_E2M3", 6},
    DtypeRow{SafetensorsDtype::kF6E3M2, "F6_E3M2", 6},
    DtypeRow{SafetensorsDtype::kU8, "U8", 8},
    DtypeRow{SafetensorsDtype::kI8, "I8", 8},
    DtypeRow{SafetensorsDtype::kF8E5M2, "F8_E5M2", 8},
    DtypeRow{SafetensorsDtype::kF8E4M3, "F8_E4M3", 8},
    DtypeRow{SafetensorsDtype::kF8E8M0, "F8_E8M0", 8},
    DtypeRow{SafetensorsDtype::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    DtypeRow{SafetensorsDtype::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    DtypeRow{SafetensorsDtype::kI16, "I16", 16},
    DtypeRow{SafetensorsDtype::kU16, "U16", 16},
    DtypeRow{SafetensorsDtype::kF16, "F16", 16},
    DtypeRow{SafetensorsDtype::kBF16, "BF16", 16},
    DtypeRow{SafetensorsDtype::kI32, "I32", 32},
    DtypeRow{SafetensorsDtype::kU32, "U32", 32},
    DtypeRow{SafetensorsDtype::kF32, "F32", 32},
    DtypeRow{SafetensorsDtype::kC64, "C64", 64},
    DtypeRow{SafetensorsDtype::kF64, "F64", 64},
    DtypeRow{SafetensorsDtype::kI64, "I64", 64},
    DtypeRow{SafetensorsDtype::kU64, "U64", 64},
};

const DtypeRow& row_of(SafetensorsDtype dtype) {
  return *std::ranges::find(kDtypes, dtype, &DtypeRow::dtype);
}

/// "F32 [2, 4]"
std::string type_text(const SafetensorsEntry& entry) {
  std::string text = std::string(dtype_name(entry.dtype)) + " [";
  for (std::size_t i = 0; i < entry.shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(entry.shape[i]);
  return text + "]";
}

[[noreturn]] void refuse(const SafetensorsEntry& entry, const std::string& rule) {
  throw FormatError("tensor " + in_quotes(entry.name) + ": " + rule);
}

std::uint64_t byte_size(const SafetensorsEntry& entry) {
  std::uint64_t bits = row_of(entry.dtype).bits;
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

std::string_view dtype_name(SafetensorsDtype dtype) { return row_of(dtype).name; }

std::optional<SafetensorsDtype> dtype_named(std::string_view name) {
  const auto* row = std::ranges::find(kDtypes, name, &DtypeRow::name);
  if (row == kDtypes.end()) return std::nullopt;
  return row->dtype;
}

std::uint64_t safetensors_header_length(std::string_view start, std::uint64_t file_size) {
  if (start.size() < kSafetensorsLengthBytes || file_size < kSafetensorsLengthBytes) {
    throw FormatError("header length: expected 8 bytes, got " + std::to_string(start.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = kSafetensorsLengthBytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(start[i]);
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

}  // namespace attn::formats
