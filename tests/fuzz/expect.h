#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "weights/formats/format_error.h"
#include "weights/formats/stored_file.h"

/// What must hold of every file, however broken.
namespace attn::fuzz {

/// Reports a finding where this does not hold.
inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "expected: %s\n", what);
  std::abort();
}

/// Runs a reader, which may refuse its file by a FormatError alone. Whether it did not.
template <class Read>
bool accepted(const Read& read) {
  try {
    read();
    return true;
  } catch (const formats::FormatError& error) {
    expect(*error.what() != '\0', "an error that says something");
    return false;
  }
}

inline std::string_view text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// What leaves a reader lies inside its file.
inline void check(const formats::StoredFile& read, std::string_view file) {
  for (const formats::Storage& storage : read.storages) {
    expect(storage.begin <= file.size() && storage.stored_size <= file.size() - storage.begin,
           "a storage inside the file");
    expect(storage.deflated || storage.size == storage.stored_size, "a stored storage as it is");
    expect(storage.deflated || storage.skip == 0, "nothing to skip of a stored storage");
    expect(storage.swap == 1 || storage.swap == 2 || storage.swap == 4 || storage.swap == 8,
           "numbers of 1, 2, 4 or 8 bytes");
  }
  for (const formats::StoredTensor& tensor : read.tensors) {
    expect(tensor.storage < read.storages.size(), "a tensor with a storage");
    expect(accepted([&] { check_tensor(tensor, read.storages[tensor.storage].size); }),
           "a tensor inside its storage");
  }
}

}  // namespace attn::fuzz
