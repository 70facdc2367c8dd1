#pragma once

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/guarded_memory.h"
#include "support/owned_problem.h"

namespace attn::testing {

/// Where a kernel writes a tensor [B, heads, rows, columns]. Its rows lie apart, heads inside of rows,
/// and nothing but them may be written.
class OutputRows {
 public:
  OutputRows(const Extent& extent, kernel::Element element)
      : extent_(extent),
        size_(kernel::size_of(element)),
        head_(extent[3] + 3),
        row_(extent[1] * head_),
        batch_(extent[2] * row_ + 5),
        memory_(bytes()) {}

  /// Makes it the problem's output.
  void receive(kernel::Problem& p) const {
    p.output = memory_.data();
    p.output_batch = batch_;
    p.output_head = head_;
    p.output_row = row_;
  }

  kernel::View view() const { return {memory_.data(), batch_, head_, row_, 1}; }
  kernel::GradientView gradient() const { return {memory_.data(), batch_, head_, row_}; }

  /// The rows without what lies between them, which must be as it was.
  std::vector<std::byte> bits() const {
    std::vector<std::byte> rows(extent_[0] * extent_[1] * extent_[2] * extent_[3] * size_);
    int64_t between = 0;  // where the bytes between rows begin
    for (int64_t b = 0; b < extent_[0]; ++b) {
      for (int64_t i = 0; i < extent_[2]; ++i) {
        for (int64_t h = 0; h < extent_[1]; ++h) {
          const int64_t row = (b * batch_ + h * head_ + i * row_) * size_;
          const int64_t end = row + extent_[3] * size_;
          const bool untouched =
              std::all_of(memory_.data() + between, memory_.data() + row,
                          [](std::byte byte) { return byte == std::byte{0xFF}; });
          EXPECT_TRUE(untouched) << "written ahead of row " << i << " of batch " << b << ", head "
                                 << h;
          std::copy(memory_.data() + row, memory_.data() + end,
                    rows.begin() + ((b * extent_[1] + h) * extent_[2] + i) * extent_[3] * size_);
          between = end;
        }
      }
    }
    return rows;
  }

 private:
  /// The last row ends the memory.
  int64_t bytes() const {
    if (extent_[0] * extent_[1] * extent_[2] == 0) return 0;
    return ((extent_[0] - 1) * batch_ + (extent_[2] - 1) * row_ + (extent_[1] - 1) * head_ +
            extent_[3]) *
           size_;
  }

  Extent extent_;
  int64_t size_;
  int64_t head_, row_, batch_;
  GuardedMemory memory_;
};

}  // namespace attn::testing
