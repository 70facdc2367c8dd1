#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>

#include "golden/case.h"

namespace attn::golden {

/// What a module or function returned; `weights` only where they were asked for.
struct Outputs {
  at::Tensor output;
  at::Tensor weights;
};

/// Arguments by name, in forward's order.
using Arguments = std::vector<std::pair<std::string, at::Tensor>>;

/// A module or function under test, called by the document's argument names.
struct Subject {
  /// Null for a function.
  std::shared_ptr<torch::nn::Module> module;
  std::function<Outputs(const Arguments& arguments, const at::Tensor& mask)> forward;
};

/// The arguments of a module's or function's forward in order, the mask aside; throws `c10::Error`
/// for an unknown one.
const std::vector<std::string>& argument_names(const std::string& module);

/// The subject that a case names, freshly built from its options; throws `c10::Error` for an
/// unknown one.
Subject make_subject(const Case& golden_case);

}  // namespace attn::golden
