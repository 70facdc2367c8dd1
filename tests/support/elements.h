#pragma once

#include <kernel/attention.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace attn::testing {

/// x with `digits` binary digits, of which none is worth less than 2^(least_exponent − digits + 1);
/// to nearest, ties to even.
inline double rounded(double x, int digits, int least_exponent) {
  if (!std::isfinite(x) || x == 0.0) return x;
  const double unit =
      std::ldexp(1.0, std::max(std::ilogb(x), least_exponent) - digits + 1);  // of the last digit
  return std::nearbyint(x / unit) * unit;
}

inline uint16_t to_bfloat16(double x) {
  if (std::isnan(x)) return 0x7FC0;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(rounded(x, 8, -126))) >>
                               16);
}

inline double from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t to_float16(double x) {
  if (std::isnan(x)) return 0x7E00;
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::abs(rounded(x, 11, -14));
  if (magnitude > 65504.0) return sign | 0x7C00;
  if (magnitude < 0x1p-14) return static_cast<uint16_t>(sign | std::lround(magnitude * 0x1p24));
  const int exponent = std::ilogb(magnitude);
  const long fraction = std::lround(std::ldexp(magnitude, 10 - exponent)) - 1024;
  return static_cast<uint16_t>(sign | ((exponent + 15) << 10) | fraction);
}

inline double from_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 0   ? std::ldexp(fraction, -24)
                           : exponent < 31 ? std::ldexp(fraction + 1024, exponent - 25)
                           : fraction == 0 ? std::numeric_limits<double>::infinity()
                                           : std::numeric_limits<double>::quiet_NaN();
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

inline double read(kernel::Element element, const void* data, int64_t index) {
  switch (element) {
    case kernel::Element::kFloat32:
      return static_cast<const float*>(data)[index];
    case kernel::Element::kFloat64:
      return static_cast<const double*>(data)[index];
    case kernel::Element::kBFloat16:
      return from_bfloat16(static_cast<const uint16_t*>(data)[index]);
    case kernel::Element::kFloat16:
      return from_float16(static_cast<const uint16_t*>(data)[index]);
  }
  return 0.0;
}

inline void write(kernel::Element element, double number, void* data, int64_t index) {
  switch (element) {
    case kernel::Element::kFloat32:
      static_cast<float*>(data)[index] = static_cast<float>(number);
      break;
    case kernel::Element::kFloat64:
      static_cast<double*>(data)[index] = number;
      break;
    case kernel::Element::kBFloat16:
      static_cast<uint16_t*>(data)[index] = to_bfloat16(number);
      break;
    case kernel::Element::kFloat16:
      static_cast<uint16_t*>(data)[index] = to_float16(number);
      break;
  }
}

inline std::vector<double> numbers_of(kernel::Element element, const void* data, int64_t count) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(read(element, data, i));
  return numbers;
}

/// What the kernel sums in.
inline kernel::Element sum_element(kernel::Element element) {
  return element == kernel::Element::kFloat64 ? kernel::Element::kFloat64
                                              : kernel::Element::kFloat32;
}

inline const char* name_of(kernel::Element element) {
  switch (element) {
    case kernel::Element::kFloat32:
      return "float32";
    case kernel::Element::kFloat64:
      return "float64";
    case kernel::Element::kBFloat16:
      return "bfloat16";
    case kernel::Element::kFloat16:
      return "float16";
  }
  return "";
}

inline constexpr kernel::Element kElements[] = {
    kernel::Element::kFloat32, kernel::Element::kFloat64, kernel::Element::kBFloat16,
    kernel::Element::kFloat16};

}  // namespace attn::testing
