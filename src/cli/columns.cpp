#include "cli/columns.h"

#include <fmt/format.h>

#include <algorithm>

namespace attn::cli {
namespace {

/// Width on a terminal: UTF-8 continuation bytes take none.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void print_columns(const std::vector<Cells>& lines) {
  std::vector<size_t> widths(lines.front().size(), 0);
  for (const Cells& cells : lines) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width_of(cells[i]));
  }
  for (const Cells& cells : lines) {
    std::string line;
    for (size_t i = 0; i + 1 < cells.size(); ++i) {
      line += cells[i] + std::string(widths[i] - width_of(cells[i]) + 2, ' ');
    }
    fmt::print("{}{}\n", line, cells.back());
  }
}

}  // namespace attn::cli
