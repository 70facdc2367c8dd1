// The rows of src/bench as Google Benchmarks: one benchmark a row, whose time is attn's best. SDPA
// and eager take turns with it inside the row and appear as counters, in the row's unit.
//
//     attn_benchmark --seconds=1 --threads=1 --benchmark_filter=causal --benchmark_format=json

#include <ATen/Parallel.h>
#include <attn/version.h>
#include <benchmark/benchmark.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "bench/machine.h"
#include "bench/measure.h"
#include "bench/rows.h"

namespace attn::bench {
namespace {

struct Arguments {
  Effort effort;
  int threads = 1;
};

/// Reads what Google Benchmark has left of the command line; false for what nobody knows.
bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--seconds=")) {
      arguments.effort.seconds = std::stod(std::string(argument.substr(10)));
    } else if (argument.starts_with("--threads=")) {
      arguments.threads = std::stoi(std::string(argument.substr(10)));
    } else if (argument == "--no_eager") {
      arguments.effort.eager = false;
    } else {
      return false;
    }
  }
  return arguments.effort.seconds >= 0.0 && arguments.threads > 0;
}

void run_row(benchmark::State& state, const Row& row, const Effort& effort,
             const Machine& machine) {
  for (auto _ : state) {
    const Result result = measure(row, effort);
    state.SetIterationTime(result.attn);
    state.SetLabel(unit(row) + " " + result.backend);
    state.counters["attn"] = rate(row, result.attn);
    if (result.sdpa) state.counters["SDPA"] = rate(row, *result.sdpa);
    if (result.eager) state.counters["eager"] = rate(row, *result.eager);
    const auto of_peak = fraction_of_peak(row, result.attn, machine.peak, machine.threads);
    if (of_peak) state.counters["of_peak"] = *of_peak;
  }
}

void add_context(const Machine& machine) {
  benchmark::AddCustomContext("attn", ATTN_VERSION);
  benchmark::AddCustomContext("cpu", machine.cpu);
  benchmark::AddCustomContext("simd", machine.simd);
  benchmark::AddCustomContext("libtorch", machine.libtorch);
  benchmark::AddCustomContext("threads", std::to_string(machine.threads));
  benchmark::AddCustomContext("peak_float32", std::to_string(machine.peak.float32));
  if (machine.peak.bfloat16) {
    benchmark::AddCustomContext("peak_bfloat16", std::to_string(*machine.peak.bfloat16));
  }
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  attn::bench::Arguments arguments;
  try {
    if (!attn::bench::parse(argc, argv, arguments)) {
      std::fputs(
          "usage: attn_benchmark [--seconds=S] [--threads=N] [--no_eager] [--benchmark_...]\n",
          stderr);
      return 2;
    }
    at::set_num_threads(arguments.threads);
    const attn::bench::Machine machine = attn::bench::this_machine();
    attn::bench::add_context(machine);
    for (const attn::bench::Row& row : attn::bench::rows()) {
      // One iteration: the row repeats itself, and keeps the best.
      benchmark::RegisterBenchmark(attn::bench::full_name(row).c_str(), attn::bench::run_row, row,
                                   arguments.effort, machine)
          ->Iterations(1)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
    benchmark::RunSpecifiedBenchmarks();
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "attn_benchmark: %s\n", error.what_without_backtrace());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attn_benchmark: %s\n", error.what());
    return 3;
  }
  benchmark::Shutdown();
}
