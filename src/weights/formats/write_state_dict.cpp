#include <bit>
#include <optional>
#include <string>
#include <vector>

#include "weights/formats/format_error.h"
#include "weights/formats/pickle_writer.h"
#include "weights/formats/state_dict.h"
#include "weights/formats/torch_globals.h"
#include "weights/formats/utf8.h"
#include "weights/formats/zip_writer.h"

namespace attn::formats {
namespace {

/// PyTorch's own alignment, so that a mapped file serves any instruction.
constexpr std::uint64_t kAlignment = 64;
/// Python's pickler sets as many items at a time.
constexpr std::size_t kBatch = 1000;

/// A storage as the archive has it.
struct Written {
  /// Its number in the archive, in the order of first use.
  std::optional<std::size_t> key;
  ElementType type = ElementType::kUInt8;
  /// PyTorch has no class of storages for the type, or tensors of several types look at it.
  bool untyped = false;
};

void check(const StoredTensor& tensor, std::size_t size) {
  if (!is_utf8(tensor.name)) {
    throw FormatError("tensor " + in_quotes(tensor.name) +
                      ": expected a name in UTF-8, got other bytes");
  }
  if (bits_of(tensor.type) % 8 != 0) {
    throw FormatError("tensor " + in_quotes(tensor.name) +
                      ": expected a dtype that PyTorch has, got " +
                      std::string(name_of(tensor.type)));
  }
  check_tensor(tensor, size);
}

std::vector<Written> number_storages(const StoredFile& file,
                                     std::span<const std::string_view> storages) {
  std::vector<Written> written(storages.size());
  std::size_t next = 0;
  for (const StoredTensor& tensor : file.tensors) {
    check(tensor, storages[tensor.storage].size());
    Written& storage = written[tensor.storage];
    if (!storage.key) {
      storage = {next++, tensor.type, storage_class_of(tensor.type).empty()};
    }
    storage.untyped |= storage.type != tensor.type;
  }
  return written;
}

void write_numbers(PickleWriter& pickle, std::span<const std::uint64_t> numbers) {
  if (numbers.empty()) return pickle.empty_tuple();
  pickle.mark();
  for (const std::uint64_t number : numbers) pickle.number(number);
  pickle.tuple();
}

void write_empty_dict(PickleWriter& pickle) {
  pickle.global("collections", "OrderedDict");
  pickle.empty_tuple();
  pickle.call();
}

void write_tensor(PickleWriter& pickle, const StoredTensor& tensor, const Written& storage,
                  std::size_t size) {
  pickle.global("torch._utils", storage.untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  pickle.mark();
  pickle.mark();
  pickle.word("storage");
  if (storage.untyped) {
    pickle.global("torch.storage", "UntypedStorage");
  } else {
    pickle.global("torch", storage_class_of(storage.type));
  }
  pickle.string(std::to_string(*storage.key));
  pickle.word("cpu");
  pickle.number(storage.untyped ? size : size / (bits_of(storage.type) / 8));
  pickle.tuple();
  pickle.persistent();
  pickle.number(tensor.offset);
  write_numbers(pickle, tensor.sizes);
  write_numbers(pickle, tensor.strides);
  pickle.boolean(false);     // requires_grad
  write_empty_dict(pickle);  // backward hooks
  if (storage.untyped) pickle.global("torch", name_of(tensor.type));
  pickle.tuple();
  pickle.call();
}

}  // namespace

void write_state_dict(const StoredFile& file, std::span<const std::string_view> storages,
                      const Sink& sink) {
  const std::vector<Written> written = number_storages(file, storages);
  PickleWriter pickle;
  write_empty_dict(pickle);
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    if (i % kBatch == 0) pickle.mark();
    const StoredTensor& tensor = file.tensors[i];
    pickle.string(tensor.name);
    write_tensor(pickle, tensor, written[tensor.storage], storages[tensor.storage].size());
    if (i % kBatch == kBatch - 1 || i + 1 == file.tensors.size()) pickle.set_items();
  }

  ZipWriter zip(sink);
  zip.add("archive/data.pkl", pickle.finish(), kAlignment);
  // No record .format_version: it would let PyTorch compute where storages lie, as its own writer
  // places them, instead of looking them up.
  zip.add("archive/byteorder", std::endian::native == std::endian::little ? "little" : "big",
          kAlignment);
  std::size_t next = 0;
  for (const StoredTensor& tensor : file.tensors) {
    if (written[tensor.storage].key != next) continue;
    zip.add("archive/data/" + std::to_string(next++), storages[tensor.storage], kAlignment);
  }
  zip.add("archive/version", "3\n", kAlignment);
  zip.finish();
}

}  // namespace attn::formats
