#include <map>
#include <string>
#include <vector>

#include "fuzz/expect.h"
#include "weights/formats/safetensors.h"

namespace attn::formats {
namespace {

/// What is written of a file is read as that file, if in another order.
void write_and_read(const StoredFile& read, std::string_view file) {
  std::vector<std::string_view> storages;
  for (const Storage& storage : read.storages)
    storages.push_back(file.substr(storage.begin, storage.size));
  std::string written;
  write_safetensors(read, storages, [&written](std::string_view piece) { written += piece; });
  const StoredFile again = read_safetensors(written);
  check(again, written);
  expect(again.metadata == read.metadata, "the same metadata");
  expect(again.tensors.size() == read.tensors.size(), "as many tensors");
  std::map<std::string_view, const StoredTensor*> by_name;
  for (const StoredTensor& tensor : again.tensors) by_name[tensor.name] = &tensor;
  for (const StoredTensor& tensor : read.tensors) {
    const auto found = by_name.find(tensor.name);
    expect(found != by_name.end(), "the same names");
    expect(found->second->type == tensor.type, "the same type");
    expect(found->second->sizes == tensor.sizes, "the same sizes");
    const Storage& storage = again.storages[found->second->storage];
    expect(
        std::string_view(written).substr(storage.begin, storage.size) == storages[tensor.storage],
        "the same bytes");
  }
}

}  // namespace

/// The input is a safetensors file.
void fuzz(std::string_view file) {
  accepted([&] {
    const StoredFile read = read_safetensors(file);
    check(read, file);
    expect(accepted([&] { write_and_read(read, file); }), "to read what was written");
  });
}

}  // namespace attn::formats
