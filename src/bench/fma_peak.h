#pragma once

#include <optional>

namespace attn::bench {

/// The most that one core can compute, in GFLOP/s, a multiply-add counted as two.
struct FmaPeak {
  /// Fused multiply-adds in float32, at the widest vectors of the CPU.
  double float32 = 0.0;
  /// Dot products of bfloat16 pairs with float32 sums, where the CPU has an instruction for them.
  std::optional<double> bfloat16 = std::nullopt;
};

/// Measures them on registers alone; takes some 20 milliseconds each.
FmaPeak measure_fma_peak();

}  // namespace attn::bench
