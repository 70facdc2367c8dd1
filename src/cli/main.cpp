#include <attn/version.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commands/commands.h"

namespace {

constexpr const char* kDescription =
    "attn: attention modules for LibTorch, equal to their Python originals.\n"
    "Exit codes: 0 good, 1 something disagrees, 2 wrong usage, 3 a file or an input is bad.";

int report(const char* message) {
  std::fputs(fmt::format("attn: {}\n", message).c_str(), stderr);
  return attn::cli::kBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = attn::cli::kGood;
  CLI::App app(kDescription, "attn");
  app.set_version_flag("--version", ATTN_VERSION);
  app.require_subcommand(1);
  attn::cli::add_bench(app, exit_code);
  attn::cli::add_check(app, exit_code);
  attn::cli::add_convert(app, exit_code);
  attn::cli::add_info(app, exit_code);
  attn::cli::add_inspect(app, exit_code);
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty()) {
    report(fmt::format("unknown command \"{}\"; attn --help lists them", argv[1]).c_str());
    return attn::cli::kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? attn::cli::kGood : attn::cli::kUsage;
  } catch (const c10::Error& error) {
    return report(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return report(error.what());
  }
  return std::fflush(stdout) == 0 ? exit_code : report("standard output could not be written");
}
