#pragma once

#include <bit>
#include <cstdint>

namespace attn::kernel {

/// The number that the bits of an IEEE half-precision number stand for.
inline float half_to_float(uint16_t half) {
  const uint32_t magnitude = half & 0x7FFFu;
  // Shifted into place, the exponent is 112 too small; the product mends subnormal numbers as well.
  const float number = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t bits = magnitude < 0x7C00u ? std::bit_cast<uint32_t>(number)
                                            : magnitude << 13 | 0x7F800000u;  // ∞ and NaN
  return std::bit_cast<float>(bits | static_cast<uint32_t>(half & 0x8000u) << 16);
}

/// Rounds to half precision, to nearest and ties to even.
inline uint16_t float_to_half(float number) {
  const uint32_t bits = std::bit_cast<uint32_t>(number);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t half = 0;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u;  // NaN
  } else if (magnitude >= 0x477FF000u) {
    half = 0x7C00u;  // 65520 and more round to ∞
  } else if (magnitude >= 0x38800000u) {
    half = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
  } else {  // subnormal: the spacing of floats from 0.5 to 1 is 2^-24, that of these numbers
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  }
  return static_cast<uint16_t>(sign | half);
}

/// Rounds to bfloat16, to nearest and ties to even.
inline uint16_t float_to_bfloat16(float number) {
  const uint32_t bits = std::bit_cast<uint32_t>(number);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const uint32_t rounded = is_nan ? bits | 0x400000u : bits + 0x7FFFu + (bits >> 16 & 1u);
  return static_cast<uint16_t>(rounded >> 16);
}

}  // namespace attn::kernel
