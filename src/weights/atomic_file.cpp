#include "weights/atomic_file.h"

#include <attn/weights.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>

namespace attn {
namespace {

namespace fs = std::filesystem;

/// Tries at a temporary name that nobody has.
constexpr int kTries = 100;

std::string temporary_name() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string name = ".attn-";
  for (int i = 0; i < 12; ++i) name += kLetters[random() % kLetters.size()];
  return name + ".tmp";
}

fs::path folder_of(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

}  // namespace

void AtomicFile::fail(const std::string& what, int error) const {
  throw WeightsError("[save_weights] path: " + what + " (" +
                     std::generic_category().message(error) + "): " + path_);
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  TORCH_CHECK(path.find('\0') == path.npos,
              "[save_weights] path: expected no zero byte, got one behind ", path.c_str());
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (!error) path_ = target;
  struct stat old {};
  const bool exists = stat(path_.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    throw WeightsError("[save_weights] path: expected a file, got a " +
                       std::string(S_ISDIR(old.st_mode) ? "directory" : "device, pipe or socket") +
                       ": " + path_);
  }
  for (int i = 0; i < kTries && file_ < 0; ++i) {
    temporary_ = (folder_of(path_) / temporary_name()).string();
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno != EEXIST) break;
  }
  if (file_ < 0) fail("cannot create a file there", errno);
  if (exists) fchmod(file_, old.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      fail("cannot be written", errno);
    }
  }
}

void AtomicFile::commit() {
  if (fsync(file_) != 0) fail("cannot be written", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be replaced", errno);
  close(file_);
  file_ = -1;
  // The new name is durable once its folder is; not every file system syncs folders.
  const int folder = open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    fsync(folder);
    close(folder);
  }
}

}  // namespace attn
