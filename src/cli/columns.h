#pragma once

#include <functional>
#include <string>
#include <vector>

namespace attn::cli {

/// One line of a table.
using Cells = std::vector<std::string>;

/// Prints lines of equally many cells, each column as wide as its widest cell, but at most 60: a
/// wider one moves the rest of its line. The last column is not filled up.
void print_columns(const std::vector<Cells>& lines);

/// The same, of at least one line, each made when it is needed (twice).
void print_columns(size_t lines, const std::function<Cells(size_t)>& line_at);

}  // namespace attn::cli
