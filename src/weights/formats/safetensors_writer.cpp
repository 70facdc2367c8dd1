#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "weights/formats/format_error.h"
#include "weights/formats/little_endian.h"
#include "weights/formats/safetensors.h"

namespace attn::formats {
namespace {

/// Where the data of a file begins: a multiple of what any type needs.
constexpr std::size_t kDataAlignment = 64;

std::string json_text(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw FormatError("name " + in_quotes(text) + ": expected UTF-8");
  }
}

std::string metadata_text(const StoredFile& file) {
  std::string text = R"("__metadata__":{)";
  for (const auto& [key, value] : file.metadata) {
    if (!text.ends_with('{')) text += ',';
    text += json_text(key) + ':' + json_text(value);
  }
  return text + '}';
}

/// `"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}`
std::string entry_text(const StoredTensor& tensor, std::uint64_t begin, std::uint64_t end) {
  const auto dtype = safetensors_dtype(tensor.type);
  if (!dtype) {
    throw FormatError("tensor " + in_quotes(tensor.name) +
                      ": expected a type of safetensors, got " + std::string(name_of(tensor.type)));
  }
  std::string shape;
  for (const std::uint64_t size : tensor.sizes)
    shape += (shape.empty() ? "" : ",") + std::to_string(size);
  return json_text(tensor.name) + R"(:{"dtype":")" + std::string(*dtype) + R"(","shape":[)" +
         shape + R"(],"data_offsets":[)" + std::to_string(begin) + ',' + std::to_string(end) + "]}";
}

}  // namespace

void write_safetensors(const StoredFile& file, std::span<const std::string_view> storages,
                       const Sink& sink) {
  std::vector<std::size_t> order(file.tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t i) { return bits_of(file.tensors[i].type); });
  std::string header = "{";
  if (!file.metadata.empty()) header += metadata_text(file);
  std::uint64_t begin = 0;
  for (const std::size_t i : order) {
    const std::uint64_t end = begin + storages[file.tensors[i].storage].size();
    if (!header.ends_with('{')) header += ',';
    header += entry_text(file.tensors[i], begin, end);
    begin = end;
  }
  header += '}';
  const std::size_t used = (kSafetensorsLengthBytes + header.size()) % kDataAlignment;
  header.append((kDataAlignment - used) % kDataAlignment, ' ');
  if (header.size() > kSafetensorsMaxHeader) {
    throw FormatError("header: expected at most " + std::to_string(kSafetensorsMaxHeader) +
                      " bytes, got " + std::to_string(header.size()));
  }
  std::string length;
  append_little_endian(length, header.size(), kSafetensorsLengthBytes);
  sink(length);
  sink(header);
  for (const std::size_t i : order) sink(storages[file.tensors[i].storage]);
}

}  // namespace attn::formats
