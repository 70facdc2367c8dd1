#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <fstream>
#include <string>

namespace attn {

/// Throws the WeightsError of a file that is no weight file: `got` says what it is instead.
[[noreturn]] void refuse_file(const std::string& path, const std::string& got);

/// An error of LibTorch or another in one line, without backtrace.
std::string reason(const std::exception& error);

/// A regular file, open for reading.
/// @throws WeightsError where there is none, where it cannot be opened, and where a read fails
class InputFile {
 public:
  explicit InputFile(const std::string& path);

  std::uint64_t size() const { return size_; }
  /// The first `most` bytes, or all of a shorter file.
  std::string start(std::size_t most);
  /// Reads bytes [offset, offset + count), which lie inside the file.
  void read(std::uint64_t offset, std::uint64_t count, void* to);

 private:
  std::string path_;
  std::uint64_t size_ = 0;
  std::ifstream stream_;
};

}  // namespace attn
