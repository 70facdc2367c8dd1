#pragma once

#include <ATen/Parallel.h>

namespace attn::testing {

/// LibTorch's number of threads for as long as it lives.
class Threads {
 public:
  explicit Threads(int count) : previous_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(previous_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int previous_;
};

}  // namespace attn::testing
