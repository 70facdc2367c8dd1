#pragma once

#include <CLI/App.hpp>

namespace attn::cli {

/// Exit codes of the command.
enum ExitCode { kGood = 0, kDisagrees = 1, kUsage = 2, kBadInput = 3 };

/// Each adds its subcommand; when it was asked for, its callback sets `exit_code`.
void add_bench(CLI::App& app, int& exit_code);
void add_check(CLI::App& app, int& exit_code);
void add_convert(CLI::App& app, int& exit_code);
void add_info(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);

}  // namespace attn::cli
