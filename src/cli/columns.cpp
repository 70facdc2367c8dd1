#include "cli/columns.h"

#include <fmt/format.h>

#include <algorithm>

namespace attn::cli {
namespace {

constexpr size_t kWidest = 60;

/// Width on a terminal: UTF-8 continuation bytes take none.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

void print_columns(const std::vector<Cells>& lines) {
  print_columns(lines.size(), [&](size_t i) { return lines[i]; });
}

void print_columns(size_t lines, const std::function<Cells(size_t)>& line_at) {
  std::vector<size_t> widths(line_at(0).size(), 0);
  for (size_t line = 0; line < lines; ++line) {
    const Cells cells = line_at(line);
    for (size_t i = 0; i < cells.size(); ++i) {
      widths[i] = std::max(widths[i], std::min(width_of(cells[i]), kWidest));
    }
  }
  for (size_t line = 0; line < lines; ++line) {
    const Cells cells = line_at(line);
    std::string text;
    for (size_t i = 0; i + 1 < cells.size(); ++i) {
      const size_t width = width_of(cells[i]);
      text += cells[i] + std::string(std::max(widths[i], width) - width + 2, ' ');
    }
    fmt::print("{}{}\n", text, cells.back());
  }
}

}  // namespace attn::cli
