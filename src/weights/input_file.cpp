#include "weights/input_file.h"

#include <attn/weights.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace attn {

void refuse_file(const std::string& path, const std::string& got) {
  throw WeightsError(
      "[read_weights] path: expected a TorchScript archive or a safetensors file, got " + got +
      ": " + path);
}

std::string reason(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

InputFile::InputFile(const std::string& path) : path_(path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found)
    refuse_file(path, "no file of this name");
  if (std::filesystem::is_directory(status)) refuse_file(path, "a directory");
  if (error) refuse_file(path, "one that cannot be reached (" + error.message() + ")");
  // A pipe would block.
  if (!std::filesystem::is_regular_file(status)) refuse_file(path, "a device, pipe or socket");
  size_ = std::filesystem::file_size(path, error);
  stream_.open(path, std::ios::binary);
  if (error || !stream_) refuse_file(path, "a file that cannot be opened");
}

std::string InputFile::start(std::size_t most) {
  std::string bytes(std::min<std::uint64_t>(most, size_), '\0');
  read(0, bytes.size(), bytes.data());
  return bytes;
}

void InputFile::read(std::uint64_t offset, std::uint64_t count, void* to) {
  stream_.seekg(static_cast<std::streamoff>(offset));
  stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(count));
  if (!stream_) refuse_file(path_, "a file that ended or failed while it was read");
}

}  // namespace attn
