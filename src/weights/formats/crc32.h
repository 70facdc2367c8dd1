#pragma once

#include <cstdint>
#include <string_view>

namespace attn::formats {

/// The CRC-32 of zip archives (ISO 3309), of `bytes` after those whose checksum is `before`.
std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0);

/// The checksum of the last `rest_size` bytes of what has the checksum `whole`, where the bytes
/// before them have the checksum `start`.
std::uint32_t crc32_of_rest(std::uint32_t whole, std::uint32_t start, std::uint64_t rest_size);

}  // namespace attn::formats
