#include "weights/formats/pickle_writer.h"

#include <utility>

#include "weights/formats/format_error.h"
#include "weights/formats/little_endian.h"

namespace attn::formats {
PickleWriter::PickleWriter() : bytes_("\x80\x02") {}

void PickleWriter::number(std::uint64_t value) {
  if (value < 0x100) {
    bytes_ += 'K';
    append_little_endian(bytes_, value, 1);
  } else if (value < 0x10000) {
    bytes_ += 'M';
    append_little_endian(bytes_, value, 2);
  } else if (value < 0x80000000) {
    bytes_ += 'J';
    append_little_endian(bytes_, value, 4);
  } else {
    // Nine bytes: the highest bit is the sign.
    bytes_ += "\x8a\x09";
    append_little_endian(bytes_, value, 8);
    bytes_ += '\0';
  }
}

void PickleWriter::string(std::string_view text) {
  if (text.size() > 0xFFFFFFFF) {
    throw FormatError("name: expected less than 4 GiB, got " + std::to_string(text.size()));
  }
  bytes_ += 'X';
  append_little_endian(bytes_, text.size(), 4);
  bytes_ += text;
}

void PickleWriter::word(std::string_view text) {
  const std::string key(text);
  if (recall(key)) return;
  string(text);
  remember(key);
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  const std::string line = std::string(module) + '\n' + std::string(name) + '\n';
  if (recall(line)) return;
  bytes_ += 'c' + line;
  remember(line);
}

std::string PickleWriter::finish() {
  bytes_ += '.';
  return std::move(bytes_);
}

bool PickleWriter::recall(const std::string& key) {
  const auto known = memo_.find(key);
  if (known == memo_.end()) return false;
  bytes_ += 'h';
  bytes_ += static_cast<char>(known->second);
  return true;
}

void PickleWriter::remember(const std::string& key) {
  if (memo_.size() > 0xFF) return;
  const auto index = static_cast<unsigned char>(memo_.size());
  memo_.emplace(key, index);
  bytes_ += 'q';
  bytes_ += static_cast<char>(index);
}

}  // namespace attn::formats
