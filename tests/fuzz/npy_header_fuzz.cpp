#include <string>

#include "fuzz/expect.h"
#include "weights/formats/npy.h"

namespace attn::formats {
namespace {

/// What is written of an array is read as that array.
void write_and_read(const StoredFile& read, std::string_view file) {
  const Storage& storage = read.storages.at(0);
  const std::string_view bytes = file.substr(storage.begin, storage.size);
  std::string written;
  const auto sink = [&written](std::string_view piece) { written += piece; };
  // In Fortran order it may not be contiguous.
  if (!accepted([&] { write_npy(read, std::span(&bytes, 1), sink); })) return;
  expect(accepted([&] {
           const StoredFile again = read_npy(written);
           check(again, written);
           expect(again.tensors.at(0).sizes == read.tensors.at(0).sizes, "the same sizes");
           expect(again.tensors[0].type == read.tensors[0].type, "the same type");
           expect(written.ends_with(bytes), "the same bytes");
         }),
         "to read what was written");
}

}  // namespace

/// The input is a .npy file.
void fuzz(std::string_view file) {
  accepted([&] {
    const StoredFile read = read_npy(file);
    check(read, file);
    write_and_read(read, file);
  });
}

}  // namespace attn::formats
