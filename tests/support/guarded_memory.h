#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace attn::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

/// Memory of so many bytes and not one more: reading or writing past its end stops the program.
/// AddressSanitizer watches the heap for that; elsewhere the memory ends where a page without
/// access begins, or before, by what the alignment takes. Such a page lies ahead of it, too, by less
/// than a page: right ahead of memory that fills its pages.
class GuardedMemory {
 public:
  explicit GuardedMemory(int64_t bytes, int64_t alignment = 1) : memory_(allocate(bytes)) {
    const Free& all = memory_.get_deleter();
    data_ = memory_.get() + (all.bytes - all.guard - bytes) / alignment * alignment;
    std::memset(data_, 0xFF, static_cast<size_t>(bytes));  // NaN, whatever the element
  }

  std::byte* data() const { return data_; }

 private:
  struct Free {
    int64_t bytes = 0;
    int64_t guard = 0;
    void operator()(std::byte* memory) const {
      if (kAddressSanitizer) {
        ::operator delete (memory, std::align_val_t{64});
      } else {
        munmap(memory, static_cast<size_t>(bytes));
      }
    }
  };

  static std::unique_ptr<std::byte, Free> allocate(int64_t bytes) {
    if (kAddressSanitizer) {
      void* memory = ::operator new (static_cast<size_t>(bytes), std::align_val_t{64});
      return {static_cast<std::byte*>(memory), Free{bytes, 0}};
    }
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t all = (bytes + page - 1) / page * page + 2 * page;
    void* memory = mmap(nullptr, static_cast<size_t>(all), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    auto* first = static_cast<std::byte*>(memory);
    mprotect(first, static_cast<size_t>(page), PROT_NONE);
    mprotect(first + all - page, static_cast<size_t>(page), PROT_NONE);
    return {first, Free{all, page}};
  }

  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_;
};

}  // namespace attn::testing
