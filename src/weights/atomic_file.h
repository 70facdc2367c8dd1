#pragma once

#include <string>
#include <string_view>

namespace attn {

/// A file that comes into being whole or not at all: written beside `path` under a temporary name,
/// then synced and renamed by `commit`. Without it the temporary file is removed and what was at
/// `path` stays. A link is followed, and an old file's permissions are kept.
/// @throws WeightsError naming the path and the system's reason
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void fail(const std::string& what, int error) const;

  std::string path_, temporary_;
  int file_ = -1;
};

}  // namespace attn
