#include "cli/text.h"

#include <fmt/format.h>

namespace attn::cli {

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  auto size = static_cast<double>(bytes);
  std::string_view units = "kMGTPE";
  size /= 1000;
  // 999.95 would be shown as 1000.0.
  for (; size >= 999.95; units.remove_prefix(1)) size /= 1000;
  return fmt::format("{:.1f} {}B", size, units.front());
}

}  // namespace attn::cli
