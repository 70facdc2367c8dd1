#include "weights/element_types.h"

#include <algorithm>
#include <array>
#include <utility>

namespace attn {
namespace {

using formats::ElementType;

constexpr std::array kPairs = {
    std::pair{ElementType::kBool, at::kBool},
    std::pair{ElementType::kFloat4E2M1, at::kFloat4_e2m1fn_x2},
    std::pair{ElementType::kUInt8, at::kByte},
    std::pair{ElementType::kInt8, at::kChar},
    std::pair{ElementType::kFloat8E5M2, at::kFloat8_e5m2},
    std::pair{ElementType::kFloat8E4M3, at::kFloat8_e4m3fn},
    std::pair{ElementType::kFloat8E8M0, at::kFloat8_e8m0fnu},
    std::pair{ElementType::kFloat8E4M3Fnuz, at::kFloat8_e4m3fnuz},
    std::pair{ElementType::kFloat8E5M2Fnuz, at::kFloat8_e5m2fnuz},
    std::pair{ElementType::kInt16, at::kShort},
    std::pair{ElementType::kUInt16, at::kUInt16},
    std::pair{ElementType::kFloat16, at::kHalf},
    std::pair{ElementType::kBFloat16, at::kBFloat16},
    std::pair{ElementType::kInt32, at::kInt},
    std::pair{ElementType::kUInt32, at::kUInt32},
    std::pair{ElementType::kFloat32, at::kFloat},
    std::pair{ElementType::kComplex32, at::kComplexHalf},
    std::pair{ElementType::kInt64, at::kLong},
    std::pair{ElementType::kUInt64, at::kUInt64},
    std::pair{ElementType::kFloat64, at::kDouble},
    std::pair{ElementType::kComplex64, at::kComplexFloat},
    std::pair{ElementType::kComplex128, at::kComplexDouble},
};

}  // namespace

std::optional<at::ScalarType> scalar_type(ElementType type) {
  const auto* pair = std::ranges::find(kPairs, type, &decltype(kPairs)::value_type::first);
  if (pair == kPairs.end()) return std::nullopt;
  return pair->second;
}

std::optional<ElementType> element_type(at::ScalarType type) {
  const auto* pair = std::ranges::find(kPairs, type, &decltype(kPairs)::value_type::second);
  if (pair == kPairs.end()) return std::nullopt;
  return pair->first;
}

}  // namespace attn
