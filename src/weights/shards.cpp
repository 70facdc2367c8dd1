#include "weights/shards.h"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string_view>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/shard_index.h"

namespace attn {
namespace {

using Names = std::set<std::string_view>;

formats::ShardIndex read_index(const std::string& path, const MappedFile& index) {
  try {
    return formats::parse_shard_index(index.bytes());
  } catch (const formats::FormatError& error) {
    refuse_file(path, std::string("a broken index of shards (") + error.what() + ")");
  }
}

/// Keeps the tensors that the index puts into this shard; takes their names from `wanted`.
void keep_named(formats::StoredFile& shard, Names& wanted) {
  std::vector<formats::StoredTensor> kept;
  for (formats::StoredTensor& tensor : shard.tensors) {
    if (wanted.erase(tensor.name) > 0) {
      kept.push_back(std::move(tensor));
    } else {
      shard.skipped.push_back({std::move(tensor.name), "a tensor that the index does not name"});
    }
  }
  shard.tensors = std::move(kept);
}

/// Bytes that the deflated storages of a shard become.
std::uint64_t inflated_bytes(const formats::StoredFile& shard) {
  std::uint64_t bytes = 0;
  for (const formats::Storage& storage : shard.storages)
    if (storage.deflated) bytes += storage.size;
  return bytes;
}

}  // namespace

OpenedFile open_shards(const std::string& path, const MappedFile& mapping, bool opaque) {
  const formats::ShardIndex index = read_index(path, mapping);
  std::vector<Names> wanted(index.files.size());
  for (const auto& [name, file] : index.tensors) wanted[file].insert(name);
  OpenedFile opened{"sharded", {}};
  std::uint64_t inflated = 0;
  for (std::size_t i = 0; i < index.files.size(); ++i) {
    const auto shard = std::filesystem::path(path).replace_filename(index.files[i]).string();
    OpenedFile single = open_single_file(shard, opaque);
    // Many small shards may not fill the memory either.
    inflated += inflated_bytes(single.parts.front().stored);
    if (inflated > formats::kMostInflatedShards) {
      refuse_file(path, "shards that inflate to more than " +
                            std::to_string(formats::kMostInflatedShards) + " bytes together");
    }
    keep_named(single.parts.front().stored, wanted[i]);
    if (!wanted[i].empty()) {
      refuse_file(shard, "one without the tensor " +
                             formats::in_quotes(std::string(*wanted[i].begin())) +
                             ", which the index " + path + " puts there");
    }
    if (i == 0) opened.format += ' ' + single.format;
    opened.parts.push_back(std::move(single.parts.front()));
  }
  return opened;
}

}  // namespace attn
