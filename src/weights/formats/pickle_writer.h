#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace attn::formats {

/// Writes a pickle of protocol 2, opcode by opcode.
class PickleWriter {
 public:
  PickleWriter();

  void mark() { bytes_ += '('; }
  /// A tuple of the values since the mark.
  void tuple() { bytes_ += 't'; }
  void empty_tuple() { bytes_ += ')'; }
  void call() { bytes_ += 'R'; }
  void persistent() { bytes_ += 'Q'; }
  /// Sets the keys and values since the mark in the dict below it.
  void set_items() { bytes_ += 'u'; }
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }
  void number(std::uint64_t value);
  void string(std::string_view text);
  /// A string that is needed often.
  void word(std::string_view text);
  void global(std::string_view module, std::string_view name);

  /// The whole pickle, whose value is the one on the stack.
  std::string finish();

 private:
  /// Remembers the value on the stack under `key`, or recalls the one that was; the memo has 256
  /// places.
  bool recall(const std::string& key);
  void remember(const std::string& key);

  std::string bytes_;
  std::map<std::string, unsigned char> memo_;
};

}  // namespace attn::formats
