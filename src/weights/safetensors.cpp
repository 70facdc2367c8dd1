#include "weights/safetensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <c10/core/ScalarType.h>

#include <bit>
#include <limits>
#include <optional>

#include "weights/formats/format_error.h"
#include "weights/formats/safetensors.h"
#include "weights/input_file.h"

namespace attn {
namespace {

using formats::SafetensorsDtype;

static_assert(std::endian::native == std::endian::little,
              "the data of safetensors is little-endian");

/// Nothing for types that LibTorch lacks.
std::optional<at::ScalarType> scalar_type(SafetensorsDtype dtype) {
  switch (dtype) {
    // clang-format off
    case SafetensorsDtype::kBool: return at::kBool;
    case SafetensorsDtype::kF4: return at::kFloat4_e2m1fn_x2;
    case SafetensorsDtype::kF6E2M3:
    case SafetensorsDtype::kF6E3M2: return std::nullopt;
    case SafetensorsDtype::kU8: return at::kByte;
    case SafetensorsDtype::kI8: return at::kChar;
    case SafetensorsDtype::kF8E5M2: return at::kFloat8_e5m2;
    case SafetensorsDtype::kF8E4M3: return at::kFloat8_e4m3fn;
    case SafetensorsDtype::kF8E8M0: return at::kFloat8_e8m0fnu;
    case SafetensorsDtype::kF8E4M3Fnuz: return at::kFloat8_e4m3fnuz;
    case SafetensorsDtype::kF8E5M2Fnuz: return at::kFloat8_e5m2fnuz;
    case SafetensorsDtype::kI16: return at::kShort;
    case SafetensorsDtype::kU16: return at::kUInt16;
    case SafetensorsDtype::kF16: return at::kHalf;
    case SafetensorsDtype::kBF16: return at::kBFloat16;
    case SafetensorsDtype::kI32: return at::kInt;
    case SafetensorsDtype::kU32: return at::kUInt32;
    case SafetensorsDtype::kF32: return at::kFloat;
    case SafetensorsDtype::kC64: return at::kComplexFloat;
    case SafetensorsDtype::kF64: return at::kDouble;
    case SafetensorsDtype::kI64: return at::kLong;
    case SafetensorsDtype::kU64: return at::kUInt64;
      // clang-format on
  }
  return std::nullopt;
}

[[noreturn]] void refuse_tensor(const formats::SafetensorsEntry& entry, const std::string& rule) {
  throw formats::FormatError("tensor " + formats::in_quotes(entry.name) + ": " + rule);
}

/// An uninitialised tensor of the entry's shape and dtype. Its bytes are known to be in the file.
at::Tensor empty_for(const formats::SafetensorsEntry& entry) {
  const auto dtype = scalar_type(entry.dtype);
  if (!dtype)
    refuse_tensor(entry,
                  "expected a type of LibTorch, got " + std::string(dtype_name(entry.dtype)));
  std::vector<int64_t> sizes;
  for (const std::uint64_t size : entry.shape) {
    if (size > std::numeric_limits<int64_t>::max())
      refuse_tensor(entry, "expected sizes below 2^63, got larger ones");
    sizes.push_back(static_cast<int64_t>(size));
  }
  if (*dtype == at::kFloat4_e2m1fn_x2) {
    // An element of LibTorch's type is a pair.
    if (sizes.back() % 2 != 0)
      refuse_tensor(entry, "expected an even last size for F4, got an odd one");
    sizes.back() /= 2;
  }
  try {
    return at::empty(sizes, at::TensorOptions(*dtype).device(at::kCPU).requires_grad(false));
  } catch (const c10::Error& error) {
    refuse_tensor(entry, "LibTorch cannot hold it: " + reason(error));
  }
}

at::Tensor read_tensor(InputFile& file, const formats::SafetensorsEntry& entry,
                       std::uint64_t data_begin) {
  at::Tensor tensor = empty_for(entry);
  file.read(data_begin + entry.begin, entry.end - entry.begin, tensor.mutable_data_ptr());
  // Bytes other than 0 and 1 are no valid bool in C++.
  return entry.dtype == SafetensorsDtype::kBool ? tensor.view(at::kByte).ne(0) : tensor;
}

}  // namespace

SafetensorsFile read_safetensors(const std::string& path) {
  InputFile file(path);
  try {
    const std::uint64_t length = formats::safetensors_header_length(
        file.start(formats::kSafetensorsLengthBytes), file.size());
    std::string json(length, '\0');
    file.read(formats::kSafetensorsLengthBytes, length, json.data());
    const std::uint64_t data_begin = formats::kSafetensorsLengthBytes + length;
    formats::SafetensorsHeader header =
        formats::parse_safetensors_header(json, file.size() - data_begin);

    SafetensorsFile result{std::move(header.metadata), {}};
    for (const formats::SafetensorsEntry& entry : header.tensors) {
      result.tensors.emplace_back(entry.name, read_tensor(file, entry, data_begin));
    }
    return result;
  } catch (const formats::FormatError& error) {
    refuse_file(path, std::string("a broken safetensors file (") + error.what() + ")");
  }
}

}  // namespace attn
