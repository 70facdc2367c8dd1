#pragma once

#include <ATen/autocast_mode.h>

namespace attn::testing {

/// Autocast to a dtype on the CPU for as long as it lives.
class Autocast {
 public:
  explicit Autocast(at::ScalarType dtype) : previous_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, previous_);
    at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::ScalarType previous_;
};

}  // namespace attn::testing
