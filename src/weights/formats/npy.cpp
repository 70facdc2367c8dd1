#include "weights/formats/npy.h"

#include <algorithm>
#include <string>
#include <utility>

#include "weights/formats/format_error.h"
#include "weights/formats/inflate.h"
#include "weights/formats/limits.h"
#include "weights/formats/npy_header.h"
#include "weights/formats/utf8.h"

namespace attn::formats {
namespace {

std::vector<std::uint64_t> fortran_strides(const std::vector<std::uint64_t>& sizes) {
  const std::vector<std::uint64_t> reversed(sizes.rbegin(), sizes.rend());
  std::vector<std::uint64_t> strides = contiguous_strides(reversed);
  std::ranges::reverse(strides);
  return strides;
}

/// The tensor that a header describes; its storage has to be put in.
StoredTensor tensor_of(const NpyHeader& header, std::string_view name) {
  StoredTensor tensor;
  tensor.name = name;
  tensor.type = header.type;
  tensor.sizes = header.sizes;
  if (!element_count(tensor.sizes))
    throw FormatError("shape: expected fewer than 2^63 elements, got more");
  tensor.strides =
      header.fortran_order ? fortran_strides(tensor.sizes) : contiguous_strides(tensor.sizes);
  return tensor;
}

/// Bytes of its elements, of which the file has `present`.
std::uint64_t byte_size(const StoredTensor& tensor, std::uint64_t present) {
  check_tensor(tensor, present);
  return *element_count(tensor.sizes) * bits_of(tensor.type) / 8;
}

void add(StoredFile& file, StoredTensor tensor, Storage storage, bool swapped) {
  if (swapped) storage.swap = number_bytes(tensor.type);
  tensor.storage = file.storages.size();
  file.storages.push_back(storage);
  file.tensors.push_back(std::move(tensor));
}

/// The beginning of a record, of `count` bytes or all that it has.
std::string start_of(std::string_view file, const ZipRecord& record, std::uint64_t count) {
  std::string start(std::min(count, record.size), '\0');
  const std::string_view stored = file.substr(record.begin, record.stored_size);
  if (record.deflated) {
    inflate_start(stored, start);
  } else {
    start = stored.substr(0, start.size());
  }
  return start;
}

void read_record(std::string_view file, const ZipArchive& archive, const ZipRecord& record,
                 std::string_view name, StoredFile& result) {
  const std::size_t header_bytes = npy_header_bytes(start_of(file, record, kNpyStartBytes));
  const std::string header_text = start_of(file, record, header_bytes);
  if (header_text.size() < header_bytes) {
    throw FormatError(".npy header: expected " + std::to_string(header_bytes) + " bytes, got " +
                      std::to_string(header_text.size()));
  }
  const NpyHeader header = parse_npy_header(header_text);
  StoredTensor tensor = tensor_of(header, name);

  Storage storage = archive.storage(record);
  storage.size -= header_bytes;
  if (const std::uint64_t size = byte_size(tensor, storage.size); size != storage.size) {
    throw FormatError("expected " + std::to_string(size) + " bytes of its array, got " +
                      std::to_string(storage.size));
  }
  if (storage.crc32)
    storage.crc32 = crc32_of_rest(*storage.crc32, crc32(header_text), storage.size);
  if (storage.deflated) {
    storage.skip = header_bytes;
  } else {
    storage.begin += header_bytes;
    storage.stored_size -= header_bytes;
  }
  add(result, std::move(tensor), storage, header.swapped);
}

}  // namespace

StoredFile read_npy(std::string_view file) {
  const std::size_t header_bytes = npy_header_bytes(file.substr(0, kNpyStartBytes));
  if (header_bytes > file.size()) {
    throw FormatError(".npy header: expected " + std::to_string(header_bytes) + " bytes, got " +
                      std::to_string(file.size()));
  }
  const NpyHeader header = parse_npy_header(file.substr(0, header_bytes));
  StoredTensor tensor = tensor_of(header, "");
  Storage storage;
  storage.begin = header_bytes;
  storage.size = storage.stored_size = byte_size(tensor, file.size() - header_bytes);
  StoredFile result;
  add(result, std::move(tensor), storage, header.swapped);
  return result;
}

StoredFile read_npz(std::string_view file, const ZipArchive& archive) {
  constexpr std::string_view kSuffix = ".npy";
  StoredFile result;
  for (const ZipRecord& record : archive.records()) {
    std::string_view name = record.name;
    if (!is_utf8(name))
      throw FormatError("record " + in_quotes(name) + ": expected a name in UTF-8");
    if (!name.ends_with(kSuffix)) {
      result.skipped.push_back({record.name, "a record that is no .npy file"});
      continue;
    }
    if (result.tensors.size() == kMaxTensors)
      throw FormatError("expected at most " + std::to_string(kMaxTensors) + " tensors, got more");
    name.remove_suffix(kSuffix.size());
    try {
      read_record(file, archive, record, name, result);
    } catch (const FormatError& error) {
      throw FormatError("record " + in_quotes(record.name) + ": " + error.what());
    }
  }
  return result;
}

}  // namespace attn::formats
