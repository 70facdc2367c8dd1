/// Judges safetensors files for test_safetensors_verdicts.py: each comes on standard input as its size, 8 bytes little
/// endian, and its bytes. Each gets a line of JSON on standard output: what the file holds, or {"refused": why}.

#include <cstdint>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "weights/formats/format_error.h"
#include "weights/formats/safetensors.h"

namespace {

using nlohmann::json;

/// {"tensors": [[name, dtype, shape, first byte, bytes], …], "metadata": [[key, value], …]}
json contents(const std::string& bytes) {
  using namespace attn::formats;
  const StoredFile file = read_safetensors(bytes);
  json tensors = json::array();
  for (const StoredTensor& tensor : file.tensors) {
    const Storage& storage = file.storages[tensor.storage];
    tensors.push_back(
        {tensor.name, *safetensors_dtype(tensor.type), tensor.sizes, storage.begin, storage.size});
  }
  json metadata = json::array();
  for (const auto& [key, value] : file.metadata) metadata.push_back(json::array({key, value}));
  return {{"tensors", tensors}, {"metadata", metadata}};
}

/// For the script, which sets the sizes: nothing here is checked.
bool read_next(std::string& bytes) {
  std::uint64_t size = 0;
  if (!std::cin.read(reinterpret_cast<char*>(&size), sizeof size)) return false;
  bytes.resize(size);
  return static_cast<bool>(std::cin.read(bytes.data(), static_cast<std::streamsize>(size)));
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string bytes; read_next(bytes);) {
    json verdict;
    try {
      verdict = contents(bytes);
    } catch (const attn::formats::FormatError& error) {
      verdict = {{"refused", error.what()}};
    }
    std::cout << verdict.dump(-1, ' ', true, json::error_handler_t::replace) << '\n';
  }
}
