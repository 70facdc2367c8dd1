#pragma once

#include <attn/backend.h>

#include <optional>

#include "bench/pass.h"
#include "bench/rows.h"

namespace attn::bench {

/// A row's problem on one set of tensors, solved in up to three ways.
struct Contest {
  Call attn;
  /// `at::scaled_dot_product_attention`, between `at::linear` in a layer; empty where it cannot
  /// express the row.
  Call sdpa;
  /// Matmul, softmax, matmul, between `at::linear` in a layer.
  Call eager;
  /// The backend that `attn` runs on; a layer does not tell.
  std::optional<Backend> backend;
};

/// Draws the row's tensors, the same ones at every call. To be called and run under `mode_of(row)`.
Contest make_contest(const Row& row);

}  // namespace attn::bench
