#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace attn {

/// Throws the WeightsError of a file that cannot be read as one: `got` says what it is instead.
[[noreturn]] void refuse_file(const std::string& path, const std::string& got);

/// An error of LibTorch or another in one line, without backtrace.
std::string reason(const std::exception& error);

/// A regular file, mapped privately: what is written to its bytes is seen by this mapping alone. It
/// lives as long as the last shared pointer to it.
class MappedFile {
 public:
  /// @throws WeightsError where there is no such file, or it cannot be opened
  static std::shared_ptr<const MappedFile> open(const std::string& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::string_view bytes() const { return {begin_, size_}; }
  /// The same bytes, for writing to this mapping's own copy of their pages.
  char* writable() const { return begin_; }

 private:
  MappedFile() = default;

  char* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace attn
