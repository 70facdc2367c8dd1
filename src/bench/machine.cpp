#include "bench/machine.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <attn/backend.h>
#include <torch/version.h>

#include <fstream>

namespace attn::bench {
namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

}  // namespace

Machine this_machine() {
  return {.cpu = cpu_name(),
          .simd = simd_target(),
          .libtorch = TORCH_VERSION,
          .threads = at::get_num_threads(),
          .peak = measure_fma_peak()};
}

}  // namespace attn::bench
