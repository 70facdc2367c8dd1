#pragma once

#include <attn/backend.h>

#include "golden/file.h"
#include "golden/subject.h"

namespace attn::golden {

/// A golden's subject with its parameters, inputs and mask, ready to run.
class Experiment {
 public:
  /// Parameters come from `weights_path` (a file beside the golden one, read under the case's
  /// prefix), else from the golden file, else from the formula.
  Experiment(const Golden& golden, const std::string& weights_path = "");

  /// Forward and, with `gradients`, backward: results under the names of the golden file.
  NamedTensors run(bool gradients);

  /// Best time of a forward without gradients, of at least `repeats`.
  double forward_seconds(int repeats);

 private:
  Outputs forward();

  Case case_;
  Subject subject_;
  Arguments leaves_;     ///< what gradients are taken of
  Arguments arguments_;  ///< leaves and aliases, in forward's order
  at::Tensor mask_;
};

/// Whether the case drops some weights and keeps others: by random numbers that the reference alone draws
/// as Python does.
bool drops_by_chance(const Golden& golden);

/// Whether this machine draws the dropout mask that the golden file was made with. Where it does
/// not (LibTorch draws through MKL on Intel CPUs), the case cannot be compared here.
bool draws_the_same_dropout(const Golden& golden);

}  // namespace attn::golden
