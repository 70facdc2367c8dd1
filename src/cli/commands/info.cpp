#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <attn/functional.h>
#include <attn/version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/columns.h"
#include "cli/commands/backend_table.h"
#include "cli/commands/commands.h"

namespace attn::cli {
namespace {

using Json = nlohmann::ordered_json;

/// What the environment makes of `kAuto` or of the projections, or what is wrong with it.
template <class Ask>
std::string answer_or_error(Ask ask) {
  try {
    return std::string(ask());
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

Json facts(const std::vector<std::string>& backends) {
  return {{"attn", ATTN_VERSION},
          {"libtorch", TORCH_VERSION},
          {"cpu", at::get_cpu_capability()},
          {"simd", answer_or_error(simd_target)},
          {"simd targets", simd_targets()},
          {"threads", at::get_num_threads()},
          {"backends", backends},
          {"default backend", answer_or_error([] { return to_string(default_backend()); })},
          {"projections", answer_or_error(projection_kernel)}};
}

void print_json(Json json, const std::vector<std::string>& backends) {
  for (const BackendRow& row : backend_table()) {
    for (size_t i = 0; i < backends.size(); ++i) {
      const auto& refusal = row.refusals[i];
      json["takes"][row.call][backends[i]] = refusal ? "no: " + *refusal : "yes";
    }
  }
  fmt::print("{}\n", json.dump(2));
}

/// Which backend takes what: the reasons of every "no" stand at the end of its line.
void print_backend_table(const std::vector<std::string>& backends) {
  std::vector<Cells> lines = {{"takes"}};
  lines.front().insert(lines.front().end(), backends.begin(), backends.end());
  lines.front().emplace_back();
  for (const BackendRow& row : backend_table()) {
    Cells cells = {row.call};
    std::string reasons;
    for (size_t i = 0; i < backends.size(); ++i) {
      cells.emplace_back(row.refusals[i] ? "no" : "yes");
      if (!row.refusals[i]) continue;
      reasons += (reasons.empty() ? "" : "; ") + backends[i] + ": " + *row.refusals[i];
    }
    cells.push_back(reasons);
    lines.push_back(cells);
  }
  print_columns(lines);
}

void info(bool json) {
  std::vector<std::string> backends;
  for (const Backend backend : available_backends()) backends.emplace_back(to_string(backend));
  const Json known = facts(backends);
  if (json) {
    print_json(known, backends);
    return;
  }
  for (const auto& [name, value] : known.items()) {
    fmt::print("{:<16} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  fmt::print("\n");
  print_backend_table(backends);
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("info", "Say which attn, LibTorch, CPU and backends this is");
  command->add_flag("--json", *json, "Print JSON");
  command->callback([json, &exit_code] {
    info(*json);
    exit_code = kGood;
  });
}

}  // namespace attn::cli
