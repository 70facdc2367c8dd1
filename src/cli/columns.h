#pragma once

#include <string>
#include <vector>

namespace attn::cli {

/// One line of a table.
using Cells = std::vector<std::string>;

/// Prints lines of equally many cells, each column as wide as its widest cell.
void print_columns(const std::vector<Cells>& lines);

}  // namespace attn::cli
