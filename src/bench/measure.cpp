#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "bench/contest.h"

namespace attn::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// GFLOP/s of one core in the arithmetic that suits the dtype best.
double peak_for(at::ScalarType dtype, const FmaPeak& peak) {
  if (dtype == at::kDouble) return peak.float32 / 2.0;
  if (dtype == at::kBFloat16) return peak.bfloat16.value_or(peak.float32);
  return peak.float32;
}

}  // namespace

std::vector<double> best_times(const std::vector<std::function<void()>>& calls, double seconds) {
  std::vector<double> best(calls.size(), std::numeric_limits<double>::infinity());
  for (const auto& call : calls) call();
  const Clock::time_point start = Clock::now();
  for (int round = 0; round < kMinimumRounds || seconds_since(start) < seconds; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      for (int call = 0; call < kCallsATurn; ++call) {
        const Clock::time_point begin = Clock::now();
        calls[i]();
        best[i] = std::min(best[i], seconds_since(begin));
      }
    }
  }
  return best;
}

Result measure(const Row& row, const Effort& effort) {
  const c10::InferenceMode mode = mode_of(row);
  Contest contest = make_contest(row);
  if (!effort.eager) contest.eager = nullptr;
  std::vector<std::function<void()>> calls;
  for (const Call* call : {&contest.attn, &contest.sdpa, &contest.eager}) {
    if (*call) calls.emplace_back([call] { (*call)(); });
  }
  const std::vector<double> best = best_times(calls, effort.seconds);

  auto next = best.begin();
  Result result;
  result.attn = *next++;
  if (contest.sdpa) result.sdpa = *next++;
  if (contest.eager) result.eager = *next++;
  if (contest.backend) result.backend = to_string(*contest.backend);
  return result;
}

double rate(const Row& row, double seconds) { return work(row) / seconds; }

std::optional<double> fraction_of_peak(const Row& row, double seconds, const FmaPeak& peak,
                                       int threads) {
  if (unit(row) != "GFLOP/s") return std::nullopt;
  return rate(row, seconds) * open_share(row) / (peak_for(row.dtype, peak) * threads);
}

}  // namespace attn::bench
