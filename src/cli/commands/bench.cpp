#include <ATen/Parallel.h>
#include <attn/version.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "bench/machine.h"
#include "bench/measure.h"
#include "bench/rows.h"
#include "cli/commands/commands.h"

namespace attn::cli {
namespace {

using bench::Machine;
using bench::Result;
using bench::Row;
using Json = nlohmann::ordered_json;

struct BenchArguments {
  std::string rows;
  int threads = 1;
  double seconds = 0.5;
  bool json = false;
};

std::vector<Row> select_rows(const std::string& pattern) {
  std::vector<Row> selected;
  const std::regex regex(pattern);
  for (const Row& row : bench::rows()) {
    if (std::regex_search(bench::full_name(row), regex)) selected.push_back(row);
  }
  TORCH_CHECK(!selected.empty(),
              "[bench] rows: expected an expression that matches a row, such as \"",
              bench::full_name(bench::rows().front()), "\", got \"", pattern, "\"");
  return selected;
}

/// Tells of a pattern that is none before anything is measured.
std::string regex_error(const std::string& pattern) {
  try {
    const std::regex compiled(pattern);
    return "";
  } catch (const std::regex_error& error) {
    return error.what();
  }
}

std::string header(const Machine& machine) {
  return fmt::format(
      "attn {} ({}), LibTorch {}, {}, {} thread{}, FMA peak of a core {:.0f} GFLOP/s{}\n"
      "GFLOP/s count the whole square of queries and keys, also where a mask leaves less of it to "
      "do: two products\nforward, five backward. GB/s are bytes of K and V. \"of peak\" counts "
      "what "
      "the causal mask leaves.\n",
      ATTN_VERSION, machine.simd, machine.libtorch, machine.cpu, machine.threads,
      machine.threads == 1 ? "" : "s", machine.peak.float32,
      machine.peak.bfloat16 ? fmt::format(" (bfloat16 {:.0f})", *machine.peak.bfloat16) : "");
}

std::string titles(size_t name_width) {
  return fmt::format("{:<{}} {:>9} {:>9} {:>9} {:>7} {:>8} {:>8}  {:<8} {}", "row", name_width,
                     "attn", "SDPA", "eager", "× SDPA", "× eager", "of peak", "unit", "backend");
}

/// "–" where there is nothing to print.
template <class Print>
std::string cell(const std::optional<double>& value, const Print& print) {
  return value ? print(*value) : "–";
}

std::string line(const Row& row, const Result& result, const Machine& machine, size_t name_width) {
  const auto rate = [&](double seconds) {
    return fmt::format("{:.{}f}", bench::rate(row, seconds),
                       bench::rate(row, seconds) < 10 ? 2 : 1);
  };
  const auto ratio = [&](double seconds) { return fmt::format("{:.2f}", seconds / result.attn); };
  const auto percent = [](double fraction) { return fmt::format("{:.0f} %", fraction * 100.0); };
  const auto of_peak = bench::fraction_of_peak(row, result.attn, machine.peak, machine.threads);
  return fmt::format("{:<{}} {:>9} {:>9} {:>9} {:>7} {:>8} {:>8}  {:<8} {}", bench::full_name(row),
                     name_width, rate(result.attn), cell(result.sdpa, rate),
                     cell(result.eager, rate), cell(result.sdpa, ratio), cell(result.eager, ratio),
                     cell(of_peak, percent), bench::unit(row), result.backend);
}

/// Lines appear as they are measured: all rows take a minute.
void print_table(const std::vector<Row>& rows, const BenchArguments& arguments,
                 const Machine& machine) {
  size_t name_width = 0;
  for (const Row& row : rows) name_width = std::max(name_width, bench::full_name(row).size());
  fmt::print("{}\n{}\n", header(machine), titles(name_width));
  for (const Row& row : rows) {
    const Result result = bench::measure(row, {.seconds = arguments.seconds});
    fmt::print("{}\n", line(row, result, machine, name_width));
    std::fflush(stdout);
  }
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json to_json(const Row& row, const Result& result, const Machine& machine) {
  return {{"group", row.group},
          {"name", row.name},
          {"backend", result.backend},
          {"unit", bench::unit(row)},
          {"work", bench::work(row)},
          {"attn_seconds", result.attn},
          {"sdpa_seconds", optional_json(result.sdpa)},
          {"eager_seconds", optional_json(result.eager)},
          {"of_peak", optional_json(bench::fraction_of_peak(row, result.attn, machine.peak,
                                                            machine.threads))}};
}

void print_json(const std::vector<Row>& rows, const BenchArguments& arguments,
                const Machine& machine) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back(to_json(row, bench::measure(row, {.seconds = arguments.seconds}), machine));
  }
  const Json all = {{"attn", ATTN_VERSION},
                    {"libtorch", machine.libtorch},
                    {"cpu", machine.cpu},
                    {"simd", machine.simd},
                    {"threads", machine.threads},
                    {"peak_float32", machine.peak.float32},
                    {"peak_bfloat16", optional_json(machine.peak.bfloat16)},
                    {"rows", list}};
  fmt::print("{}\n", all.dump(2));
}

void run_bench(const BenchArguments& arguments) {
  const std::vector<Row> rows = select_rows(arguments.rows);
  at::set_num_threads(arguments.threads);
  const Machine machine = bench::this_machine();
  if (arguments.json) {
    print_json(rows, arguments, machine);
  } else {
    print_table(rows, arguments, machine);
  }
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure attention side by side with LibTorch's, and against the machine's peak");
  command
      ->add_option("--rows", arguments->rows,
                   "Only the rows whose group/name this regular expression matches")
      ->check(CLI::Validator(regex_error, "REGEX"));
  command->add_option("--threads", arguments->threads, "Threads of LibTorch and attn")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seconds", arguments->seconds, "Time for each row, at least")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([arguments, &exit_code] {
    run_bench(*arguments);
    exit_code = kGood;
  });
}

}  // namespace attn::cli
