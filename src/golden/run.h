#pragma once

#include <attn/backend.h>
#include <attn/weights.h>

#include <optional>

#include "golden/file.h"
#include "golden/subject.h"

namespace attn::golden {

/// A weight file, and how it is read.
struct WeightSource {
  std::string path;
  LoadOptions options;
};

/// A golden's subject with its parameters, inputs and mask, ready to run.
class Experiment {
 public:
  /// Parameters come from `weights`, else from the golden file, else from the formula.
  explicit Experiment(const Golden& golden, const std::optional<WeightSource>& weights = {});

  /// Multiplies every element of inputs and parameters, of a case in float64, by 1 ± `unit`, with
  /// signs by the formula: what one rounding of each may do.
  void disturb(double unit, uint64_t draw);

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
