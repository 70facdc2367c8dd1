#pragma once

#include <string>

#include "bench/fma_peak.h"

namespace attn::bench {

/// What a measurement was taken on; figures mean little without it.
struct Machine {
  /// As the operating system names it.
  std::string cpu;
  /// The instructions that attn computes with.
  std::string simd;
  std::string libtorch;
  int threads = 1;
  FmaPeak peak;
};

/// Describes this machine and measures its peak.
Machine this_machine();

}  // namespace attn::bench
