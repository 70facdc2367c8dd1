#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attn::cli {

/// A line on stderr that tells how far a long write is: for files from 64 MiB, on a terminal. It is
/// gone when the bar is.
class ProgressBar {
 public:
  explicit ProgressBar(std::string_view title);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar();

  /// Whether there is a terminal.
  bool is_seen() const { return is_seen_; }
  void show(std::uint64_t done, std::uint64_t total);

 private:
  std::string title_;
  bool is_seen_, is_shown_ = false;
};

}  // namespace attn::cli
