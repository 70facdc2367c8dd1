#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/zip_bytes.h"

/// Pickles opcode by opcode: each function gives the bytes that push one value.
namespace attn::testing::pickled {

using Values = std::vector<std::string>;

inline std::string concatenated(const Values& values) {
  std::string bytes;
  for (const std::string& value : values) bytes += value;
  return bytes;
}

/// A whole pickle of protocol 2.
inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

inline std::string text(std::string_view utf8) {
  return "X" + number(utf8.size(), 4) + std::string(utf8);
}
/// An int of 32 bits.
inline std::string integer(std::int64_t value) {
  return "J" + number(static_cast<std::uint64_t>(value), 4);
}
/// An int of 64 bits.
inline std::string long_integer(std::int64_t value) {
  return "\x8a\x08" + number(static_cast<std::uint64_t>(value), 8);
}
inline std::string tuple(const Values& values) { return "(" + concatenated(values) + "t"; }
inline std::string list(const Values& values) { return "](" + concatenated(values) + "e"; }
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string bytes = "}(";
  for (const auto& [key, value] : items) bytes += key + value;
  return bytes + "u";
}
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string call(const std::string& callable, const Values& arguments) {
  return callable + tuple(arguments) + "R";
}

inline std::string none() { return "N"; }
inline std::string boolean(bool value) { return value ? "\x88" : "\x89"; }

inline std::string integers(const std::vector<std::int64_t>& values) {
  Values items;
  for (const std::int64_t value : values) items.push_back(long_integer(value));
  return tuple(items);
}

inline std::string storage_id(const Values& items) { return tuple(items) + "Q"; }
inline std::string float_storage(std::string_view key, std::int64_t elements) {
  return storage_id({text("storage"), global("torch", "FloatStorage"), text(key), text("cpu"),
                     long_integer(elements)});
}

inline std::string ordered_dict() { return global("collections", "OrderedDict") + ")R"; }

inline std::string tensor(const std::string& storage, std::int64_t offset,
                          const std::vector<std::int64_t>& sizes,
                          const std::vector<std::int64_t>& strides) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage, long_integer(offset), integers(sizes), integers(strides), boolean(false),
               ordered_dict()});
}

/// What torch.save makes of an object: an archive without checksums, whose storages are named.
inline std::string archive(const std::string& value,
                           const std::vector<std::pair<std::string, std::string>>& records) {
  std::vector<ZipPart> parts = {zip_part("archive/data.pkl", whole(value), 0)};
  for (const auto& [name, bytes] : records) parts.push_back(zip_part("archive/" + name, bytes, 0));
  return zip_bytes(parts);
}

}  // namespace attn::testing::pickled
