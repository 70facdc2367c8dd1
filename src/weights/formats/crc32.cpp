#include "weights/formats/crc32.h"

#include <zlib.h>

#include <array>
#include <cstddef>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attn::formats {
namespace {

std::uint32_t of_zlib(std::string_view bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

#if defined(__x86_64__)

/// x^n modulo the polynomial, for carry-less multiplication: bit 32 - i is the coefficient of x^i.
constexpr std::uint64_t power(int n) {
  std::uint32_t remainder = 0x80000000;
  for (int i = 0; i < n; ++i) remainder = remainder >> 1 ^ (remainder & 1 ? 0xEDB88320 : 0);
  return std::uint64_t{remainder} << 1;
}

/// Bytes that are folded at a time, and beyond which it pays.
constexpr std::size_t kBlock = 64, kLeast = 4 * kBlock;

struct Lane {
  __m128i bits;
};

__attribute__((target("pclmul"))) inline __m128i folded(__m128i value, __m128i powers,
                                                        __m128i next) {
  const __m128i low = _mm_clmulepi64_si128(value, powers, 0x00);
  const __m128i high = _mm_clmulepi64_si128(value, powers, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/// Whole blocks: a message has the checksum of any other that leaves the same remainder, so four
/// lanes of 128 bits move 512 bits ahead at a time, each a product of what they hold with that power
/// of x; at the end 16 bytes stand for all.
__attribute__((target("pclmul"))) std::uint32_t of_blocks(std::string_view bytes,
                                                          std::uint32_t before) {
  const auto* next = reinterpret_cast<const __m128i*>(bytes.data());
  const __m128i* const end = next + bytes.size() / sizeof(__m128i);
  std::array<Lane, 4> lanes;
  for (Lane& lane : lanes) lane.bits = _mm_loadu_si128(next++);
  // The register of a checksum begins with its complement, at the first bytes.
  lanes[0].bits = _mm_xor_si128(lanes[0].bits, _mm_cvtsi32_si128(static_cast<int>(~before)));
  // The low half comes first and has 64 bits farther to go; as factors of 64 bits the powers lie 32
  // bits ahead themselves.
  const __m128i far = _mm_set_epi64x(power(512 - 32), power(512 + 32));
  while (next < end) {
    for (Lane& lane : lanes) lane.bits = folded(lane.bits, far, _mm_loadu_si128(next++));
  }
  const __m128i near = _mm_set_epi64x(power(128 - 32), power(128 + 32));
  __m128i all = lanes[0].bits;
  for (std::size_t i = 1; i < lanes.size(); ++i) all = folded(all, near, lanes[i].bits);
  std::array<char, sizeof(__m128i)> last;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last.data()), all);
  // The complement of an empty register.
  return of_zlib({last.data(), last.size()}, 0xFFFFFFFF);
}

#endif

}  // namespace

std::uint32_t crc32(std::string_view bytes, std::uint32_t before) {
  if (bytes.empty()) return before;  // for a null pointer zlib gives the checksum of nothing
#if defined(__x86_64__)
  static const bool multiplies = __builtin_cpu_supports("pclmul");
  if (multiplies && bytes.size() >= kLeast) {
    const std::size_t blocks = bytes.size() / kBlock * kBlock;
    before = of_blocks(bytes.substr(0, blocks), before);
    bytes.remove_prefix(blocks);
    if (bytes.empty()) return before;
  }
#endif
  return of_zlib(bytes, before);
}

std::uint32_t crc32_of_rest(std::uint32_t whole, std::uint32_t start, std::uint64_t rest_size) {
  // whole = (start followed by rest_size zeros) ^ rest: the checksum is linear.
  return whole ^
         static_cast<std::uint32_t>(crc32_combine(start, 0, static_cast<z_off_t>(rest_size)));
}

}  // namespace attn::formats
