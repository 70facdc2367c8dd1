#include "golden/check.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/columns.h"
#include "cli/commands/commands.h"

namespace attn::cli {
namespace {

using golden::Row;
using golden::Verdict;

struct CheckArguments {
  std::string path;
  std::vector<std::string> backends;
  std::string cases;
  bool exact = false;
  bool quiet = false;
  bool json = false;
  /// Used where its path is not empty.
  golden::GivenWeights weights;
};

std::string verdict_text(const Row& row) {
  std::string text(golden::to_string(row.verdict));
  if (row.verdict == Verdict::kAgrees) {
    if (row.same_bits) text += ", same bits";
    return row.reason.empty() ? text : text + " (" + row.reason + ")";
  }
  if (row.verdict != Verdict::kSkipped) {
    std::transform(text.begin(), text.end(), text.begin(), ::toupper);
  }
  return text + ": " + row.reason;
}

std::string milliseconds(double seconds) {
  return seconds > 0.0 ? fmt::format("{:.3f} ms", seconds * 1e3) : "–";
}

std::ptrdiff_t count(const std::vector<Row>& rows, Verdict verdict) {
  return std::count_if(rows.begin(), rows.end(),
                       [&](const Row& row) { return row.verdict == verdict; });
}

Cells to_cells(const Row& row) {
  const bool ran = !row.worst.tensor.empty();
  const bool stated = row.worst.tolerance > 0.0;
  return {row.module,
          row.file,
          std::string(to_string(row.backend)),
          ran ? fmt::format("{:.1e}", row.worst.from_python) : "–",
          stated ? fmt::format("{:.1e}", row.worst.from_float64) : "–",
          stated ? fmt::format("{:.1e}", row.worst.tolerance) : "–",
          milliseconds(row.seconds),
          milliseconds(row.python_seconds),
          verdict_text(row)};
}

void print_table(const std::vector<Row>& rows, const CheckArguments& arguments) {
  std::vector<Cells> lines = {{"module", "file", "backend", "from Python", "from float64", "bound",
                               "time", "Python", "verdict"}};
  for (const Row& row : rows) {
    if (!arguments.quiet || row.verdict != Verdict::kAgrees) lines.push_back(to_cells(row));
  }
  if (lines.size() > 1) print_columns(lines);
  const std::ptrdiff_t skipped = count(rows, Verdict::kSkipped);
  fmt::print("{} of {} agree{}{}.\n", count(rows, Verdict::kAgrees), rows.size(),
             arguments.exact ? " with Python, bit for bit" : " within their bounds",
             skipped > 0 ? fmt::format(", {} skipped", skipped) : "");
}

void print_json(const std::vector<Row>& rows) {
  golden::Json list = golden::Json::array();
  for (const Row& row : rows) {
    list.push_back({{"name", row.name},
                    {"module", row.module},
                    {"file", row.file},
                    {"backend", std::string(to_string(row.backend))},
                    {"tensor", row.worst.tensor},
                    {"from_python", row.worst.from_python},
                    {"from_float64", row.worst.from_float64},
                    {"tolerance", row.worst.tolerance},
                    {"same_bits", row.same_bits},
                    {"verdict", std::string(golden::to_string(row.verdict))},
                    {"reason", row.reason},
                    {"seconds", row.seconds},
                    {"python_seconds", row.python_seconds}});
  }
  fmt::print("{}\n", list.dump(2));
}

int check(const CheckArguments& arguments) {
  if (arguments.path.empty()) throw CLI::RequiredError("path");
  golden::CheckOptions options;
  options.exact = arguments.exact;
  if (!arguments.cases.empty()) options.declared = golden::read_cases(arguments.cases);
  for (const std::string& name : arguments.backends) {
    if (arguments.exact && name != "reference") {
      throw CLI::ValidationError("--exact",
                                 "expected --backend reference, which alone has Python's "
                                 "bits, got " +
                                     name);
    }
    options.backends.push_back(parse_backend(name));
  }
  if (!arguments.weights.path.empty()) options.weights = arguments.weights;
  const std::vector<Row> rows = golden::check_path(arguments.path, options);
  if (arguments.json) {
    print_json(rows);
  } else {
    print_table(rows, arguments);
  }
  if (count(rows, Verdict::kUnreadable) > 0) return kBadInput;
  const bool good = count(rows, Verdict::kDisagrees) == 0 && count(rows, Verdict::kStale) == 0;
  return good ? kGood : kDisagrees;
}

void add_weights(CLI::App& command, golden::GivenWeights& weights) {
  CLI::Option* file = command.add_option(
      "--weights", weights.path,
      "A weight file of any format that attn reads, instead of the weights that the golden file "
      "names or declares");
  const auto add = [&](const char* name, auto& value, const char* text) {
    return command.add_option(name, value, text)->needs(file);
  };
  add("--prefix", weights.prefix, "What the module's names begin with in it");
  add("--layout", weights.layout, "The layout that it has; see docs/weight-layouts.md");
  add("--module", weights.module,
      "The module, e.g. CausalMultiheadAttention. It must be the golden file's; one made by hand, "
      "of forward's arguments and \"output\", needs it and takes the sizes from the weights");
  add("--heads", weights.heads,
      "Its heads. They must be the golden file's; one made by hand needs them where the weights do "
      "not tell")
      ->check(CLI::PositiveNumber);
  add("--tolerance", weights.tolerance,
      "Largest difference that agrees, instead of the golden file's bounds or, of one made by "
      "hand, "
      "of 8 times what rounding does to the module; see tests/golden/README.md")
      ->check(CLI::NonNegativeNumber);
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto arguments = std::make_shared<CheckArguments>();
  CLI::App* command =
      app.add_subcommand("check", "Run golden files from Python and say how far the results agree");
  CLI::Option* path =
      command->add_option("path", arguments->path, "A golden file, or a folder of them");
  command->add_option("--golden", arguments->path, "The same, by name")->excludes(path);
  command
      ->add_option("--backend", arguments->backends,
                   "Backends to run; all of this build by default")
      ->check(CLI::IsMember({"reference", "fused", "libtorch"}));
  command->add_option("--cases", arguments->cases,
                      "The declaration, cases.json: files made from another one are stale");
  command->add_flag("--exact", arguments->exact,
                    "Demand Python's bits, of the reference backend, instead of the stated bounds");
  add_weights(*command, arguments->weights);
  command->add_flag("--quiet", arguments->quiet, "Print only what does not agree");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([arguments, &exit_code] { exit_code = check(*arguments); });
}

}  // namespace attn::cli
