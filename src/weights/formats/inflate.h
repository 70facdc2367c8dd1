#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace attn::formats {

/// The most bytes that one byte of a deflated stream can become: a match of 258 bytes takes two bits.
inline constexpr std::uint64_t kMostInflation = 1032;

/// Fills `to` with what `deflated` (RFC 1951) holds after its first `skip` bytes.
/// @throws FormatError where it is broken, does not end with its last byte, or holds fewer or more
/// bytes than `skip` and `to`
void inflate(std::string_view deflated, std::span<char> to, std::uint64_t skip = 0);

/// Fills `to` with the first bytes of what `deflated` holds, whatever follows.
/// @throws FormatError where they are broken or fewer
void inflate_start(std::string_view deflated, std::span<char> to);

}  // namespace attn::formats
