#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "weights/formats/format_error.h"
#include "weights/formats/stored_file.h"

namespace attn::formats {

/// What a fuzzer does with an input: its *_fuzz.cpp says it.
void fuzz(std::string_view input);

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
  } catch (const FormatError& error) {
    expect(*error.what() != '\0', "an error that says something");
    return false;
  }
}

/// What leaves a reader lies inside its file.
inline void check(const StoredFile& read, std::string_view file) {
  for (const Storage& storage : read.storages) {
    expect(storage.begin <= file.size() && storage.stored_size <= file.size() - storage.begin,
           "a storage inside the file");
    expect(storage.deflated || storage.size == storage.stored_size, "a stored storage as it is");
    expect(storage.deflated || storage.skip == 0, "nothing to skip of a stored storage");
    expect(storage.swap == 1 || storage.swap == 2 || storage.swap == 4 || storage.swap == 8,
           "numbers of 1, 2, 4 or 8 bytes");
  }
  for (const StoredTensor& tensor : read.tensors) {
    expect(tensor.storage < read.storages.size(), "a tensor with a storage");
    expect(accepted([&] { check_tensor(tensor, read.storages[tensor.storage].size); }),
           "a tensor inside its storage");
  }
}

}  // namespace attn::formats
