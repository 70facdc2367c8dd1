#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <attn/functional.h>
#include <attn/version.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"

namespace attn::cli {
namespace {

/// What the environment makes of `kAuto`, or what is wrong with it.
std::string default_backend_text() {
  try {
    return std::string(to_string(default_backend()));
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
}

void info(bool json) {
  std::vector<std::string> backends;
  for (const Backend backend : available_backends()) backends.emplace_back(to_string(backend));
  const nlohmann::ordered_json facts = {{"attn", ATTN_VERSION},
                                        {"libtorch", TORCH_VERSION},
                                        {"cpu", at::get_cpu_capability()},
                                        {"threads", at::get_num_threads()},
                                        {"backends", backends},
                                        {"default backend", default_backend_text()}};
  if (json) {
    fmt::print("{}\n", facts.dump(2));
    return;
  }
  for (const auto& [name, value] : facts.items()) {
    fmt::print("{:<16} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  }
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
