#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attn::formats {

/// The unsigned number in bytes [at, at + count) of `bytes`, least significant byte first. They lie
/// inside, and are eight at most.
inline std::uint64_t little_endian(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = count; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

/// Appends the low `count` bytes of `value`, least significant byte first.
inline void append_little_endian(std::string& to, std::uint64_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}

}  // namespace attn::formats
