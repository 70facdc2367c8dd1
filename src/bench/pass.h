#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>

#include <functional>
#include <vector>

#include "bench/rows.h"

namespace attn::bench {

/// The output of the forward, the gradients of the backward, or the one and then the others. On the
/// stack for the forward, whose shortest rows take two microseconds.
using Tensors = c10::SmallVector<at::Tensor, 4>;
using Call = std::function<Tensors()>;
using Forward = std::function<at::Tensor()>;

/// What a forward reads and what a backward starts from.
struct Leaves {
  /// Everything that a gradient is taken of, in the order of the gradients.
  std::vector<at::Tensor> inputs;
  /// The gradient of the output.
  at::Tensor incoming;
};

/// Inference mode for the forward alone, LibTorch's usual one for a pass with gradients.
inline c10::InferenceMode mode_of(const Row& row) {
  return c10::InferenceMode(row.pass == Pass::kForward);
}

/// Leaves that require gradients if the pass has any, with an incoming gradient of these sizes.
Leaves make_leaves(Pass pass, std::vector<at::Tensor> inputs, at::IntArrayRef output_sizes);

/// What the pass makes of a forward on these leaves. A backward's graph is built here, outside of
/// the call.
Call call_of(Pass pass, Forward forward, const Leaves& leaves);

}  // namespace attn::bench
