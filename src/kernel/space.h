#pragma once

#include <cstdint>

#include "kernel/attention.h"

namespace attn::kernel {

/// Hands out aligned pieces of a piece of memory; without memory it only adds up their sizes.
class Space {
 public:
  explicit Space(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <class T>
  T* take(int64_t count) {
    char* piece = memory_ == nullptr ? nullptr : memory_ + bytes_;
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(piece);
  }

  int64_t bytes() const { return bytes_; }

 private:
  char* memory_;
  int64_t bytes_ = 0;
};

}  // namespace attn::kernel
