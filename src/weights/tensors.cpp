#include "weights/tensors.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "weights/element_types.h"
#include "weights/formats/crc32.h"
#include "weights/formats/format_error.h"
#include "weights/formats/inflate.h"

namespace attn {
namespace {

using formats::ElementType;
using formats::StoredFile;
using formats::StoredTensor;

static_assert(std::endian::native == std::endian::little,
              "storages are taken as little-endian, as they lie in their files");

[[noreturn]] void refuse_tensor(const StoredTensor& tensor, const std::string& rule) {
  throw formats::FormatError("tensor " + formats::in_quotes(tensor.name) + ": " + rule);
}

/// Reverses the bytes of each number.
void swap_bytes(std::span<char> bytes, std::size_t number) {
  for (std::size_t i = 0; i + number <= bytes.size(); i += number)
    std::reverse(bytes.begin() + i, bytes.begin() + i + number);
}

/// What the tensors of a storage make of it.
struct Use {
  /// What it must begin at a multiple of.
  std::size_t aligned = 1;
  /// The bytes from the first bool to the last.
  std::uint64_t bools_begin = ~std::uint64_t{0}, bools_end = 0;
  bool has_others = false;

  void add(const StoredTensor& tensor) {
    aligned = std::max(aligned, formats::number_bytes(tensor.type));
    has_others |= tensor.type != ElementType::kBool;
    if (tensor.type != ElementType::kBool || std::ranges::count(tensor.sizes, 0U) > 0) return;
    std::uint64_t end = tensor.offset + 1;
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i)
      end += (tensor.sizes[i] - 1) * tensor.strides[i];
    bools_begin = std::min(bools_begin, tensor.offset);
    bools_end = std::max(bools_end, end);
  }
};

/// Bytes other than 0 and 1 are no valid bool in C++. Once for each storage: many tensors may be views
/// of it.
void make_true(const StoredTensor& tensor, const Use& use, std::span<char> storage) {
  for (std::uint64_t i = use.bools_begin; i < use.bools_end; ++i) {
    // Only where needed: a page that is written to is copied.
    if (storage[i] == 0 || storage[i] == 1) continue;
    if (use.has_others) {
      refuse_tensor(tensor, "expected bools of 0 and 1 in memory that it shares, got another byte");
    }
    storage[i] = 1;
  }
}

/// Storages of a file, each made when its first tensor asks for it.
class Storages {
 public:
  Storages(const StoredFile& file, const std::shared_ptr<const MappedFile>& mapping)
      : file_(file), mapping_(mapping), made_(file.storages.size()), uses_(made_.size()) {
    for (const StoredTensor& tensor : file.tensors) uses_[tensor.storage].add(tensor);
  }

  const c10::Storage& of(const StoredTensor& tensor) {
    auto& made = made_[tensor.storage];
    if (!made) made = make(tensor, file_.storages[tensor.storage], uses_[tensor.storage]);
    return *made;
  }

 private:
  c10::Storage make(const StoredTensor& tensor, const formats::Storage& storage,
                    const Use& use) const {
    const std::string_view stored = mapping_->bytes().substr(storage.begin, storage.stored_size);
    const bool as_it_lies = !storage.deflated && storage.swap == 1 &&
                            reinterpret_cast<std::uintptr_t>(stored.data()) % use.aligned == 0;
    c10::DataPtr memory =
        as_it_lies ? in_mapping(storage) : c10::GetCPUAllocator()->allocate(storage.size);
    const std::span bytes(static_cast<char*>(memory.mutable_get()), storage.size);
    if (storage.deflated) {
      formats::inflate(stored, bytes, storage.skip);
    } else if (!as_it_lies) {
      std::ranges::copy(stored, bytes.begin());
    }
    if (storage.crc32) {
      const std::uint32_t crc32 = formats::crc32({bytes.data(), bytes.size()});
      if (crc32 != *storage.crc32) {
        refuse_tensor(tensor,
                      "expected bytes with the archive's checksum, got others: the file is "
                      "damaged");
      }
    }
    if (storage.swap > 1) swap_bytes(bytes, storage.swap);
    make_true(tensor, use, bytes);
    return {c10::Storage::use_byte_size_t(), storage.size, std::move(memory), nullptr, false};
  }

  c10::DataPtr in_mapping(const formats::Storage& storage) const {
    using Mapping = std::shared_ptr<const MappedFile>;
    return {mapping_->writable() + storage.begin, new Mapping(mapping_),
            [](void* mapping) { delete static_cast<Mapping*>(mapping); }, at::kCPU};
  }

  const StoredFile& file_;
  const std::shared_ptr<const MappedFile>& mapping_;
  std::vector<std::optional<c10::Storage>> made_;
  std::vector<Use> uses_;
};

std::vector<int64_t> signed_sizes(const std::vector<std::uint64_t>& sizes) {
  return {sizes.begin(), sizes.end()};
}

/// An element of LibTorch's float4 is a pair.
void halve_last(const StoredTensor& stored, std::vector<int64_t>& sizes,
                std::vector<int64_t>& strides) {
  const bool pairs = !sizes.empty() && sizes.back() % 2 == 0 && strides.back() == 1 &&
                     std::all_of(strides.begin(), strides.end() - 1,
                                 [](int64_t stride) { return stride % 2 == 0; });
  if (!pairs) refuse_tensor(stored, "expected an even last size for F4, got an odd one");
  sizes.back() /= 2;
  for (auto stride = strides.begin(); stride + 1 < strides.end(); ++stride) *stride /= 2;
}

at::Tensor make_tensor(const StoredTensor& stored, Storages& storages) {
  const auto dtype = scalar_type(stored.type);
  if (!dtype) {
    refuse_tensor(stored,
                  "expected a type of LibTorch, got " + std::string(formats::name_of(stored.type)));
  }
  std::vector<int64_t> sizes = signed_sizes(stored.sizes);
  std::vector<int64_t> strides = signed_sizes(stored.strides);
  if (stored.type == ElementType::kFloat4E2M1) halve_last(stored, sizes, strides);
  const c10::Storage& storage = storages.of(stored);
  at::Tensor tensor =
      at::empty({0}, at::TensorOptions(*dtype).device(at::kCPU).requires_grad(false));
  tensor.set_(storage, static_cast<int64_t>(stored.offset), sizes, strides);
  return tensor;
}

}  // namespace

NamedTensors make_tensors(const StoredFile& file,
                          const std::shared_ptr<const MappedFile>& mapping) {
  Storages storages(file, mapping);
  NamedTensors tensors;
  for (const StoredTensor& stored : file.tensors)
    tensors.emplace_back(stored.name, make_tensor(stored, storages));
  return tensors;
}

}  // namespace attn
