#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "cli/text.h"

namespace attn::cli {
namespace {

constexpr std::uint64_t kLarge = 64 << 20;
constexpr int kWidth = 30;

}  // namespace

ProgressBar::ProgressBar(std::string_view title)
    : title_(printable(title)), is_seen_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (is_shown_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total) {
  if (!is_seen_ || total < kLarge) return;
  const double part = static_cast<double>(done) / static_cast<double>(total);
  const auto filled = static_cast<int>(part * kWidth);
  std::fputs(fmt::format("\r\033[K{} [{:#<{}}{:{}}] {:3.0f} % of {}", title_, "", filled, "",
                         kWidth - filled, 100 * part, bytes_text(total))
                 .c_str(),
             stderr);
  std::fflush(stderr);
  is_shown_ = true;
}

}  // namespace attn::cli
