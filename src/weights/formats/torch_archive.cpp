#include "weights/formats/torch_archive.h"

#include <bit>
#include <limits>

#include "weights/formats/format_error.h"

namespace attn::formats {

const ZipRecord* find_beside_first(const ZipArchive& archive, std::string_view name) {
  if (archive.records().empty()) return nullptr;
  const std::string& first = archive.records().front().name;
  return archive.find(first.substr(0, first.find('/') + 1) + std::string(name));
}

TorchArchive::TorchArchive(const ZipArchive& archive) : archive_(archive) {
  if (archive.records().empty()) refuse("archive", "records of PyTorch", "none");
  const std::string& first = archive.records().front().name;
  const std::size_t slash = first.find('/');
  if (slash == first.npos) {
    refuse("archive", "records in one folder, as PyTorch has them", "record " + in_quotes(first));
  }
  folder_ = first.substr(0, slash + 1);
  // Archives from before PyTorch 2.1 do not say, and are little-endian.
  if (!find("byteorder")) {
    swapped_ = std::endian::native != std::endian::little;
    return;
  }
  const std::string order = read("byteorder", 16);
  if (order != "little" && order != "big") {
    refuse("record byteorder", "little or big", in_quotes(order));
  }
  swapped_ = (order == "little") != (std::endian::native == std::endian::little);
}

const ZipRecord* TorchArchive::find(std::string_view name) const {
  return archive_.find(folder_ + std::string(name));
}

std::string TorchArchive::read(std::string_view name, std::uint64_t most) const {
  const ZipRecord* record = find(name);
  if (!record) refuse("archive", "a record " + in_quotes(folder_ + std::string(name)), "none");
  return archive_.read(*record, most);
}

PlacedStorage ArchiveStorages::place(const TorchStorage& storage, ElementType type) {
  const std::string name = records_ + std::string(storage.key);
  const std::size_t swap = archive_.swapped() ? number_bytes(type) : std::size_t{1};
  const auto [known, fresh] = placed_.try_emplace(name, file_.storages.size());
  if (fresh) {
    const ZipRecord* record = archive_.find(name);
    if (!record) {
      refuse("storage " + in_quotes(storage.key), "a record " + in_quotes(name), "none");
    }
    Storage stored = archive_.zip().storage(*record);
    stored.swap = swap;
    file_.storages.push_back(stored);
  }
  const Storage& stored = file_.storages[known->second];
  if (stored.swap != swap) {
    refuse("storage " + in_quotes(storage.key), "one size of numbers in the other byte order",
           "several");
  }
  if (const std::uint64_t size = byte_size(storage, storage.elements); size > stored.size) {
    refuse("storage " + in_quotes(storage.key), std::to_string(size) + " bytes in its record",
           std::to_string(stored.size));
  }
  return placed(storage, known->second, storage.elements);
}

std::uint64_t byte_size(const TorchStorage& storage, std::uint64_t elements) {
  std::uint64_t size = 0;
  if (__builtin_mul_overflow(elements, storage.element_size(), &size) ||
      size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    refuse("storage " + in_quotes(storage.key), "less than 2^63 bytes",
           std::to_string(elements) + " elements");
  }
  return size;
}

PlacedStorage placed(const TorchStorage& storage, std::size_t index, std::uint64_t elements) {
  if (!storage.view) return {index, byte_size(storage, elements)};
  std::uint64_t end = 0;
  if (__builtin_add_overflow(storage.view->first, storage.view->second, &end) || end > elements) {
    refuse("storage " + in_quotes(storage.key),
           "views inside its " + std::to_string(elements) + " elements",
           std::to_string(storage.view->second) + " from " + std::to_string(storage.view->first));
  }
  return {index, byte_size(storage, end)};
}

}  // namespace attn::formats
