#include "golden/check.h"

#include <ATen/ops/rand.h>
#include <attn/functional.h>
#include <c10/util/Exception.h>
#include <torch/utils.h>

#include <algorithm>
#include <filesystem>

#include "golden/run.h"

namespace attn::golden {
namespace {

namespace fs = std::filesystem;

constexpr int kTimingRepeats = 15;

bool passes(const Comparison& comparison, bool exact) {
  return exact ? comparison.same_bits : comparison.agrees();
}

/// The order in which comparisons are worth showing: failures first, then the nearest to its bound.
double severity(const Comparison& comparison, bool exact) {
  if (!comparison.same_pattern) return std::numeric_limits<double>::infinity();
  if (exact) return comparison.same_bits ? 0.0 : 1.0 + comparison.from_python;
  const double bound = comparison.tolerance;
  if (comparison.from_float64 == 0.0) return 0.0;
  return bound > 0.0 ? comparison.from_float64 / bound : std::numeric_limits<double>::max();
}

void judge(Row& row, const Golden& golden, const NamedTensors& results, bool exact) {
  row.verdict = Verdict::kAgrees;
  row.same_bits = true;
  double worst = -1.0;
  for (const auto& [name, result] : results) {
    const Comparison comparison = compare(golden, name, result);
    if (!passes(comparison, exact)) row.verdict = Verdict::kDisagrees;
    row.same_bits = row.same_bits && comparison.same_bits;
    if (severity(comparison, exact) > worst) {
      worst = severity(comparison, exact);
      row.worst = comparison;
    }
  }
  if (row.verdict == Verdict::kDisagrees) {
    row.reason = row.name + ": " + row.worst.tensor +
                 (row.worst.same_pattern ? " is too far from Python's"
                                         : " differs in shape, dtype, NaN or ∞");
  }
}

/// Why the case says nothing about the backend, before it is run.
std::optional<std::string> skip_reason(const Golden& golden, Backend backend, bool exact) {
  if (backend != Backend::kReference && drops_by_chance(golden)) {
    return "it drops other weights than Python does";
  }
  if (!exact && !draws_the_same_dropout(golden)) {
    return "this CPU draws other dropout masks than the one that made the file";
  }
  if (golden.golden_case.module == "AttentionScore" && backend != Backend::kReference) {
    return "it ends at the logits, ahead of every backend";
  }
  return std::nullopt;
}

/// Runs what the backend takes: outputs alone where it refuses gradients, and says so.
NamedTensors run(Experiment& experiment, const Case& declared, std::string& note) {
  try {
    return experiment.run(declared.gradients);
  } catch (const BackendError& error) {
    if (!declared.gradients) throw;
    note = "outputs only: " + error.reason();
    return experiment.run(/*gradients=*/false);
  }
}

Row check_run(const Golden& golden, Backend backend, const std::optional<WeightSource>& weights,
              bool exact) {
  Row row;
  row.name = golden.golden_case.name;
  row.module = golden.golden_case.module;
  row.file = fs::path(weights ? weights->path : golden.path).filename().string();
  row.backend = backend;
  row.python_seconds = golden.python_seconds;
  if (const auto reason = skip_reason(golden, backend, exact)) {
    row.verdict = Verdict::kSkipped;
    row.reason = *reason;
    return row;
  }
  const BackendGuard guard(backend);
  Experiment experiment(golden, weights);
  try {
    judge(row, golden, run(experiment, golden.golden_case, row.reason), exact);
    if (golden.python_seconds > 0.0) row.seconds = experiment.forward_seconds(kTimingRepeats);
  } catch (const BackendError& error) {
    row.verdict = Verdict::kSkipped;
    row.reason = error.reason();
  }
  return row;
}

std::vector<Backend> backends_of(const CheckOptions& options) {
  if (!options.backends.empty()) return options.backends;
  return options.exact ? std::vector<Backend>{Backend::kReference} : available_backends();
}

bool is_stale(const Golden& golden, const std::vector<Case>& declared) {
  if (declared.empty()) return false;
  const auto same = [&](const Case& c) { return c.source == golden.golden_case.source; };
  return std::none_of(declared.begin(), declared.end(), same);
}

Row unchecked(const Golden& golden, Verdict verdict, const std::string& reason) {
  Row row;
  row.name = golden.golden_case.name;
  row.module = golden.golden_case.module;
  row.file = fs::path(golden.path).filename().string();
  row.verdict = verdict;
  row.reason = reason;
  return row;
}

/// Where the parameters come from, in turn; nothing stands for the golden file and the formula.
std::vector<std::optional<WeightSource>> sources_of(const Golden& golden,
                                                    const CheckOptions& options) {
  const Case& declared = golden.golden_case;
  if (options.weights) return {source_of(*options.weights, declared)};
  std::vector<std::optional<WeightSource>> sources;
  for (const std::string& weights : declared.weights) {
    sources.push_back(
        WeightSource{(fs::path(golden.path).parent_path() / weights).string(),
                     LoadOptions().prefix(declared.prefix).layout(declared.weights_layout)});
  }
  if (sources.empty()) sources.emplace_back();
  return sources;
}

/// With weights given, of their module alone.
GoldenFile read_file(const std::string& path, const CheckOptions& options) {
  GoldenFile file = read_golden_file(path);
  if (!options.weights) return file;
  for (Golden& golden : file.goldens) adopt(golden, *options.weights);
  if (file.goldens.empty()) file.goldens.push_back(read_golden_by_hand(path, *options.weights));
  file.inits.clear();
  return file;
}

std::vector<Row> check_file(const std::string& path, const CheckOptions& options) {
  std::vector<Row> rows;
  const GoldenFile file = read_file(path, options);
  for (const Golden& golden : file.goldens) {
    const std::vector<Row> more = check_golden(golden, options);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  for (const Init& init : file.inits) rows.push_back(check_init(init));
  return rows;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAgrees:
      return "agrees";
    case Verdict::kDisagrees:
      return "disagrees";
    case Verdict::kStale:
      return "stale";
    case Verdict::kSkipped:
      return "skipped";
    case Verdict::kUnreadable:
      return "unreadable";
  }
  return "";
}

std::vector<Row> check_golden(const Golden& golden, const CheckOptions& options) {
  if (is_stale(golden, options.declared)) {
    return {unchecked(golden, Verdict::kStale,
                      "made from another declaration; run scripts/export_golden.py")};
  }
  std::vector<Row> rows;
  for (const auto& weights : sources_of(golden, options)) {
    for (const Backend backend : backends_of(options)) {
      rows.push_back(check_run(golden, backend, weights, options.exact));
    }
  }
  return rows;
}

Row check_init(const Init& init) {
  Row row;
  row.name = init.golden_case.name;
  row.module = init.golden_case.module;
  row.file = "initial parameters";
  torch::manual_seed(init.golden_case.seed);
  NamedTensors drawn;
  const Subject subject = make_subject(init.golden_case);
  for (const auto& item : subject.module->named_parameters()) {
    drawn.emplace_back(item.key(), item.value().detach());
  }
  drawn.emplace_back("next", at::rand({4}));
  Golden golden;
  golden.tensors = init.parameters;
  golden.tensors.emplace_back("next", init.next);
  judge(row, golden, drawn, /*exact=*/true);
  return row;
}

std::vector<Row> check_path(const std::string& path, const CheckOptions& options) {
  std::vector<Row> rows;
  if (!fs::is_directory(path)) {
    rows = check_file(path, options);
  } else {
    TORCH_CHECK(!options.weights, "[check] path: expected one golden file with --weights, got ",
                path);
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      try {
        const std::vector<Row> more = check_file(file.string(), options);
        rows.insert(rows.end(), more.begin(), more.end());
      } catch (const c10::Error& error) {
        Golden golden;
        golden.path = file.string();
        rows.push_back(unchecked(golden, Verdict::kUnreadable, error.what_without_backtrace()));
      }
    }
  }
  TORCH_CHECK(!rows.empty(),
              "[check] path: expected a golden file or a folder that holds one, got ", path);
  return rows;
}

}  // namespace attn::golden
