#pragma once

#include <kernel/attention.h>

#include <cstddef>
#include <cstdint>

namespace attn::testing {

/// The view from its batch b on, of elements of so many bytes.
inline kernel::View at_batch(kernel::View view, int64_t b, int64_t size) {
  if (view.data != nullptr) {
    view.data = static_cast<const std::byte*>(view.data) + b * view.batch * size;
  }
  return view;
}

/// Batch b of a problem, without the others.
inline kernel::Problem alone(kernel::Problem p, int64_t b) {
  p.batches = 1;
  p.query = at_batch(p.query, b, kernel::size_of(p.element));
  p.key = at_batch(p.key, b, kernel::size_of(p.element));
  p.value = at_batch(p.value, b, kernel::size_of(p.element));
  p.attend = at_batch(p.attend, b, 1);
  p.block = at_batch(p.block, b, 1);
  p.bias = at_batch(p.bias, b, kernel::size_of(p.bias_element));
  return p;
}

}  // namespace attn::testing
