#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The least that tests need to make safetensors files, good and broken ones.
namespace attn::testing {

/// Eight bytes of length, the header, the data; `length` may lie.
inline std::string safetensors_bytes(std::string_view header, std::string_view data,
                                     std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes.append(header).append(data);
}

inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  return safetensors_bytes(header, data, header.size());
}

inline std::string safetensors_dtype(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return "BOOL";
    case at::kInt:
      return "I32";
    case at::kLong:
      return "I64";
    case at::kHalf:
      return "F16";
    case at::kBFloat16:
      return "BF16";
    case at::kFloat:
      return "F32";
    case at::kDouble:
      return "F64";
    case at::kFloat8_e4m3fn:
      return "F8_E4M3";
    default:
      throw std::invalid_argument("safetensors_dtype: a dtype that no test needs");
  }
}

/// The bytes of a file with these tensors, whose names need no escapes.
inline std::string safetensors_bytes(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    std::string shape;
    for (const int64_t size : tensor.sizes()) {
      if (!shape.empty()) shape += ',';
      shape += std::to_string(size);
    }
    const at::Tensor dense = tensor.detach().contiguous();
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes());
    header += (header == "{" ? "\"" : ",\"") + name + R"(":{"dtype":")" +
              safetensors_dtype(dense.scalar_type()) + R"(","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(data.size()) +
              "]}";
  }
  return safetensors_bytes(header + "}", data);
}

}  // namespace attn::testing
