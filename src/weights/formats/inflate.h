#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace attn::formats {

/// The CRC-32 of zip archives (ISO 3309), of `bytes` after those whose checksum is `before`.
std::uint32_t crc32(std::string_view bytes, std::uint32_t before = 0);

/// Fills `to` with what `deflated` (RFC 1951) holds.
/// @throws FormatError where it is broken, or holds fewer or more bytes than `to`
void inflate(std::string_view deflated, std::span<char> to);

}  // namespace attn::formats
