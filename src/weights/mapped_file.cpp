#include "weights/mapped_file.h"

#include <attn/weights.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace attn {
namespace {

std::string system_reason(int error) { return std::generic_category().message(error); }

/// A file descriptor, closed at the end.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

}  // namespace

void refuse_file(const std::string& path, const std::string& got) {
  throw WeightsError("[read_weights] path: expected a weight file, got " + got + ": " + path);
}

std::string reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  if (path.find('\0') != path.npos) refuse_file(path.c_str(), "a path with a zero byte behind it");
  // A pipe would block without O_NONBLOCK.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  const int open_error = errno;
  struct stat status {};
  if ((file.value >= 0 ? fstat(file.value, &status) : stat(path.c_str(), &status)) != 0) {
    if (errno == ENOENT) refuse_file(path, "no file of this name");
    refuse_file(path, "one that cannot be reached (" + system_reason(errno) + ")");
  }
  if (S_ISDIR(status.st_mode)) refuse_file(path, "a directory");
  if (!S_ISREG(status.st_mode)) refuse_file(path, "a device, pipe or socket");
  if (file.value < 0)
    refuse_file(path, "a file that cannot be opened (" + system_reason(open_error) + ")");

  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->size_ = static_cast<std::size_t>(status.st_size);
  if (mapped->size_ == 0) return mapped;
  void* begin = mmap(nullptr, mapped->size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                     file.value, 0);
  if (begin == MAP_FAILED)
    refuse_file(path, "a file that cannot be mapped (" + system_reason(errno) + ")");
  mapped->begin_ = static_cast<char*>(begin);
  return mapped;
}

MappedFile::~MappedFile() {
  if (begin_ != nullptr) munmap(begin_, size_);
}

}  // namespace attn
