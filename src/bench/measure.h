#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/fma_peak.h"
#include "bench/rows.h"

namespace attn::bench {

/// The fewest rounds of `best_times`.
constexpr int kMinimumRounds = 4;

/// Calls in a row at every turn: the second finds the caches as it would have left them itself, not
/// as an opponent with more memory did.
constexpr int kCallsATurn = 2;

/// The shortest time of each call, in seconds. They take turns, so that whatever else the machine
/// does meets them alike, for `seconds` in all and at least `kMinimumRounds` rounds after a call
/// each to warm up.
std::vector<double> best_times(const std::vector<std::function<void()>>& calls, double seconds);

/// What was measured of a row; nothing where an opponent has no way to compute it.
struct Result {
  /// Best times in seconds.
  double attn = 0.0;
  std::optional<double> sdpa;
  std::optional<double> eager;
  /// The backend that attn ran on, "" where a layer does not tell.
  std::string backend;
};

/// What a row's figures may cost.
struct Effort {
  /// Time for the row, at least.
  double seconds = 0.5;
  /// Whether eager takes part, which takes most of the time of long rows.
  bool eager = true;
};

/// Runs attn and its opponents side by side on LibTorch's threads.
Result measure(const Row& row, const Effort& effort);

/// `work` of the row per second.
double rate(const Row& row, double seconds);

/// Which part of the peak of `threads` cores the row reaches in a time, by the flops that a causal
/// mask leaves to do; nothing for rows that are bound by memory.
std::optional<double> fraction_of_peak(const Row& row, double seconds, const FmaPeak& peak,
                                       int threads);

}  // namespace attn::bench
