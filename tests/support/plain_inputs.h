#pragma once

#include <kernel/attention.h>

#include <cstdint>
#include <vector>

#include "support/elements.h"

namespace attn::testing {

inline int64_t index_of(const kernel::View& view, int64_t b, int64_t h, int64_t row,
                        int64_t column) {
  return b * view.batch + h * view.head + row * view.row + column * view.column;
}

/// The numbers of a batch and head, row by row.
inline std::vector<double> rows_of(const kernel::View& view, kernel::Element element, int64_t b,
                                   int64_t h, int64_t rows, int64_t columns) {
  std::vector<double> numbers;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      numbers.push_back(read(element, view.data, index_of(view, b, h, r, c)));
    }
  }
  return numbers;
}

/// Whether causality, `attend` or `block` close a key to a query.
inline bool is_masked(const kernel::Problem& p, int64_t b, int64_t h, int64_t i, int64_t j) {
  const auto byte = [&](const kernel::View& view) {
    return static_cast<const uint8_t*>(view.data)[index_of(view, b, h, i, j)];
  };
  return (p.causal && j > i + p.causal_offset) ||
         (p.attend.data != nullptr && byte(p.attend) == 0) ||
         (p.block.data != nullptr && byte(p.block) != 0);
}

}  // namespace attn::testing
