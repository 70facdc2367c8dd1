#pragma once

#include <array>
#include <cstdint>

#include "kernel/attention.h"

namespace attn::kernel {

/// Keys whose chances one call of the generator decides, 16 bits for each.
constexpr int64_t kKeysPerDraw = 8;

/// Philox 4x32-10, a counter-based random generator (Salmon et al. 2011,
/// doi:10.1145/2063384.2063405): ten rounds make 128 random bits of a counter and a key.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter,
                                         std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

/// Whether the problem's dropout keeps a weight: the place (b, h, query, key) and the seed decide, so
/// that neither tiles, threads nor instruction sets matter. The generator's key is the seed, its
/// counter (query, key / 8, b · H + h, 0); the low half of word w of what it gives belongs to
/// key 8⌊key / 8⌋ + 2w, the high half to the next, and a weight is kept where it is at least `dropped`.
inline bool keeps_weight(const Problem& p, int64_t b, int64_t h, int64_t query, int64_t key) {
  const auto bits =
      philox({static_cast<uint32_t>(query), static_cast<uint32_t>(key / kKeysPerDraw),
              static_cast<uint32_t>(b * p.heads + h), 0},
             {static_cast<uint32_t>(p.dropout_seed), static_cast<uint32_t>(p.dropout_seed >> 32)});
  const int64_t place = key % kKeysPerDraw;
  return (bits[static_cast<size_t>(place / 2)] >> 16 * (place % 2) & 0xFFFF) >= p.dropped;
}

/// What a kept weight is multiplied with; 0 where none is kept.
inline double dropout_scale(const Problem& p) {
  constexpr uint32_t kAll = 65536;
  return p.dropped >= kAll ? 0.0 : double{kAll} / (kAll - p.dropped);
}

}  // namespace attn::kernel
