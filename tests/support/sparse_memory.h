#pragma once

#include <kernel/attention.h>
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "support/elements.h"
#include "support/owned_problem.h"

namespace attn::testing {

/// Address space of which only the pages that are touched exist.
class SparseMemory {
 public:
  explicit SparseMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  ~SparseMemory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }

  std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

inline constexpr int64_t kFar =
    (int64_t{1} << 31) + 64;  // bytes: more than 31 bits, and no power of two

/// Layouts of [2, 2, 3, 2] elements at most, of which one stride is that of kFar bytes.
inline std::array<kernel::View, 4> far_layouts(kernel::Element element) {
  const int64_t far = kFar / kernel::size_of(element);
  return {{{nullptr, far, 1000, 100, 1},
           {nullptr, 1000, far, 100, 1},
           {nullptr, 2000, 1000, far, 1},
           {nullptr, 2000, 1000, 100, far}}};
}

/// Likewise of results, whose columns are adjacent.
inline std::array<kernel::View, 3> far_layouts_of_results(kernel::Element element) {
  const int64_t far = kFar / kernel::size_of(element);
  return {{{nullptr, far, 100, 4, 1}, {nullptr, 100, far, 4, 1}, {nullptr, 100, 40, far, 1}}};
}

/// Copies a tensor of bytes-wide elements into sparse memory, under strides of its own.
inline kernel::View spread_out(const kernel::View& from, kernel::View to, std::byte* memory,
                               const Extent& extent, kernel::Element element) {
  to.data = memory;
  for (int64_t b = 0; b < extent[0]; ++b) {
    for (int64_t h = 0; h < extent[1]; ++h) {
      for (int64_t r = 0; r < extent[2]; ++r) {
        for (int64_t c = 0; c < extent[3]; ++c) {
          write(element,
                read(element, from.data,
                     b * from.batch + h * from.head + r * from.row + c * from.column),
                memory, b * to.batch + h * to.head + r * to.row + c * to.column);
        }
      }
    }
  }
  return to;
}

}  // namespace attn::testing
