#include "weights/packed.h"

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "weights/element_types.h"
#include "weights/formats/format_error.h"

namespace attn {
namespace {

using formats::ElementType;
using formats::StoredTensor;

/// A multiple of every element size, so that a storage may be cut there.
constexpr std::int64_t kCut = 16;

/// Without a lazy conjugation or negation, which no file has.
at::Tensor resolved(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg();
}

StoredTensor place_of(const std::string& name, const at::Tensor& tensor, std::int64_t offset) {
  StoredTensor stored;
  stored.name = name;
  stored.type = *element_type(tensor.scalar_type());
  stored.offset = static_cast<std::uint64_t>(offset);
  stored.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  stored.strides.assign(tensor.strides().begin(), tensor.strides().end());
  if (stored.type == ElementType::kFloat4E2M1) {
    // LibTorch's element is a pair.
    TORCH_CHECK(!stored.sizes.empty() && stored.strides.back() == 1,
                "[save_weights] tensors: expected rows of float4 pairs, got ",
                formats::in_quotes(name), " ", tensor.sizes());
    stored.offset *= 2;
    stored.sizes.back() *= 2;
    for (auto stride = stored.strides.begin(); stride + 1 < stored.strides.end(); ++stride)
      *stride *= 2;
  }
  return stored;
}

/// Adds `memory`, a contiguous tensor on the CPU, as a storage.
std::size_t add_storage(PackedTensors& packed, at::Tensor memory) {
  formats::Storage& storage = packed.file.storages.emplace_back();
  storage.size = storage.stored_size = memory.nbytes();
  packed.bytes.emplace_back(static_cast<const char*>(memory.const_data_ptr()), memory.nbytes());
  packed.memory.push_back(std::move(memory));
  return packed.file.storages.size() - 1;
}

/// Bytes [begin, end) of a storage.
struct Range {
  std::int64_t begin, end;
};

Range range_of(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto element = static_cast<std::int64_t>(tensor.element_size());
  const std::int64_t begin = tensor.storage_offset() * element;
  return {begin / kCut * kCut, begin + (last + 1) * element};
}

/// Bytes of a storage, wherever it is, as a tensor on the CPU.
at::Tensor bytes_of(const c10::Storage& storage, Range range) {
  at::Tensor bytes = at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()));
  bytes.set_(storage, range.begin, {range.end - range.begin}, {1});
  return bytes.cpu();
}

}  // namespace

void check_savable(const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    TORCH_CHECK(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta() &&
                    tensor.has_storage(),
                "[save_weights] tensors: expected dense tensors with data, got ",
                formats::in_quotes(name), ", which is not");
    TORCH_CHECK(element_type(tensor.scalar_type()),
                "[save_weights] tensors: expected dtypes that files have, got ",
                formats::in_quotes(name), " of ", tensor.scalar_type());
  }
}

PackedTensors pack_contiguous(const NamedTensors& tensors) {
  PackedTensors packed;
  for (const auto& [name, tensor] : tensors) {
    at::Tensor dense = resolved(tensor).cpu().contiguous();
    StoredTensor stored = place_of(name, dense, 0);
    stored.storage = add_storage(packed, std::move(dense));
    packed.file.tensors.push_back(std::move(stored));
  }
  return packed;
}

PackedTensors pack_sharing(const NamedTensors& tensors) {
  std::vector<at::Tensor> plain;
  std::unordered_map<const c10::StorageImpl*, Range> used;
  for (const auto& [name, tensor] : tensors) {
    plain.push_back(resolved(tensor));
    if (tensor.numel() == 0) continue;
    const Range range = range_of(plain.back());
    const auto [found, fresh] =
        used.try_emplace(plain.back().storage().unsafeGetStorageImpl(), range);
    Range& whole = found->second;
    whole = {std::min(whole.begin, range.begin), std::max(whole.end, range.end)};
  }

  PackedTensors packed;
  std::unordered_map<const c10::StorageImpl*, std::size_t> indices;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const at::Tensor& tensor = plain[i];
    const std::string& name = tensors[i].first;
    if (tensor.numel() == 0) {
      StoredTensor stored = place_of(name, tensor, 0);
      stored.storage = add_storage(packed, at::empty({0}, at::kByte));
      packed.file.tensors.push_back(std::move(stored));
      continue;
    }
    const c10::StorageImpl* key = tensor.storage().unsafeGetStorageImpl();
    const Range range = used.at(key);
    const auto [index, fresh] = indices.try_emplace(key, 0);
    if (fresh) index->second = add_storage(packed, bytes_of(tensor.storage(), range));
    const auto element = static_cast<std::int64_t>(tensor.element_size());
    StoredTensor stored = place_of(name, tensor, tensor.storage_offset() - range.begin / element);
    stored.storage = index->second;
    packed.file.tensors.push_back(std::move(stored));
  }
  return packed;
}

}  // namespace attn
