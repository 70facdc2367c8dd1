#include <array>
#include <string>

#include "weights/formats/format_error.h"
#include "weights/formats/npy.h"
#include "weights/formats/npy_header.h"
#include "weights/formats/zip_writer.h"

namespace attn::formats {
namespace {

std::string header_of(const StoredTensor& tensor) {
  try {
    return npy_header_text(tensor.type, tensor.sizes);
  } catch (const FormatError& error) {
    throw FormatError("tensor " + in_quotes(tensor.name) + ": " + error.what());
  }
}

/// The elements of a tensor, which must be contiguous.
std::string_view elements(const StoredTensor& tensor, std::string_view storage) {
  check_tensor(tensor, storage.size());
  const std::uint64_t count = *element_count(tensor.sizes);
  if (count == 0) return {};
  const std::vector<std::uint64_t> strides = contiguous_strides(tensor.sizes);
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (tensor.sizes[i] > 1 && tensor.strides[i] != strides[i])
      throw FormatError("tensor " + in_quotes(tensor.name) + ": expected it contiguous");
  }
  const std::uint64_t bytes = bits_of(tensor.type) / 8;
  return storage.substr(tensor.offset * bytes, count * bytes);
}

}  // namespace

void write_npy(const StoredFile& file, std::span<const std::string_view> storages,
               const Sink& sink) {
  if (file.tensors.size() != 1) {
    throw FormatError("a .npy file holds one tensor: expected one, got " +
                      std::to_string(file.tensors.size()));
  }
  const StoredTensor& tensor = file.tensors[0];
  const std::string header = header_of(tensor);
  const std::string_view bytes = elements(tensor, storages[tensor.storage]);
  sink(header);
  sink(bytes);
}

void write_npz(const StoredFile& file, std::span<const std::string_view> storages,
               const Sink& sink) {
  ZipWriter writer(sink);
  for (const StoredTensor& tensor : file.tensors) {
    const std::string header = header_of(tensor);
    const std::array<std::string_view, 2> pieces = {header,
                                                    elements(tensor, storages[tensor.storage])};
    // The header is a multiple of 64 bytes, and so the elements lie at one: they can be mapped.
    writer.add(tensor.name + ".npy", pieces, 64);
  }
  writer.finish();
}

}  // namespace attn::formats
