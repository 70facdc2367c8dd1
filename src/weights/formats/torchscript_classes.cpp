#include "weights/formats/torchscript_classes.h"

#include <algorithm>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/pickle_text.h"

namespace attn::formats {
namespace {

/// The strings, at most so many, of a line `["weight", "bias", ]`.
TorchScriptClasses::Names string_list(std::string_view line, std::size_t most,
                                      std::string_view where) {
  const auto refuse = [&]() {
    throw FormatError("code of " + in_quotes(where) + ": expected a list of names, got " +
                      in_quotes(line));
  };
  TorchScriptClasses::Names names;
  if (!line.starts_with('[') || !line.ends_with(']')) refuse();
  std::string_view rest = line.substr(1, line.size() - 2);
  while (!rest.empty()) {
    // Up to the quote that no backslash escapes.
    std::size_t end = 1;
    while (end < rest.size() && rest[end] != rest[0]) end += rest[end] == '\\' ? 2 : 1;
    auto name = unquoted(rest.substr(0, end + 1));
    if (!name) refuse();
    names.insert(*std::move(name));
    if (names.size() > most) {
      throw FormatError("code of " + in_quotes(where) + ": expected at most " +
                        std::to_string(kMaxTensors) + " names, got more");
    }
    rest.remove_prefix(end + 1);
    if (!rest.starts_with(", ")) {
      if (!rest.empty()) refuse();
      break;
    }
    rest.remove_prefix(2);
  }
  return names;
}

}  // namespace

const TorchScriptClass* TorchScriptClasses::find(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return nullptr;
  // Classes made in C++ may have no module: ".M", in the file "code/.py".
  const std::string_view module = name.substr(0, dot);
  if (files_.find(module) == files_.end()) read_file(module);
  const auto known = classes_.find(name);
  return known == classes_.end() ? nullptr : &known->second;
}

TorchScriptClasses::Names TorchScriptClasses::names(std::string_view line,
                                                    std::string_view module) {
  Names names = string_list(line, kMaxTensors - names_, module);
  names_ += names.size();
  return names;
}

void TorchScriptClasses::read_file(std::string_view module) {
  files_.emplace(module);
  std::string path = "code/" + std::string(module) + ".py";
  std::replace(path.begin(), path.end() - 3, '.', '/');
  if (!archive_.find(path)) return;
  const std::string text = archive_.read(path, kMaxText - read_);
  read_ += text.size();
  constexpr std::string_view kParameters = "  __parameters__ = ", kBuffers = "  __buffers__ = ";
  TorchScriptClass* current = nullptr;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with("class ")) {
      const std::size_t end = line.find_first_of("(:");
      if (end == line.npos) continue;
      if (classes_.size() >= kMaxClasses) {
        throw FormatError("code of " + in_quotes(module) + ": expected at most " +
                          std::to_string(kMaxClasses) + " classes, got more");
      }
      current = &classes_[std::string(module) + '.' + std::string(line.substr(6, end - 6))];
      current->is_module = line.substr(end) == "(Module):";
    } else if (!line.starts_with(' ') && !line.empty()) {
      current = nullptr;
    } else if (current && line.starts_with(kParameters)) {
      current->parameters = names(line.substr(kParameters.size()), module);
    } else if (current && line.starts_with(kBuffers)) {
      current->buffers = names(line.substr(kBuffers.size()), module);
    }
  }
}

}  // namespace attn::formats
