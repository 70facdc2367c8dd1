#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace attn::testing {

inline int64_t bytes_in_status(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size())) * 1024;
  }
  return 0;
}

/// By how much the memory of the process grew at most during `call`; nothing where Linux does not say.
template <class Call>
std::optional<int64_t> peak_growth(Call call) {
  if (!(std::ofstream("/proc/self/clear_refs") << "5" << std::flush)) return std::nullopt;
  const int64_t before = bytes_in_status("VmRSS:");
  call();
  return bytes_in_status("VmHWM:") - before;
}

}  // namespace attn::testing
