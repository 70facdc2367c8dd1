#include "weights/recognise.h"

namespace attn {
namespace {

/// A string literal of C++: what is no printable ASCII in octal, which needs no end.
std::string literal(const std::string& text) {
  const auto digit = [](int bits) { return static_cast<char>('0' + (bits & 7)); };
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (byte < 0x20 || byte > 0x7E) {
      result += {'\\', digit(byte >> 6), digit(byte >> 3), digit(byte)};
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string joined(const std::string& before, const std::string& next) {
  return before.empty() ? next : before + ", " + next;
}

/// "  // n_heads ?: not in the file", of the arguments that are unknown, or "".
std::string remark(const RecognisedLayer& layer) {
  std::string unknown;
  for (const auto& argument : layer.arguments) {
    if (!argument.value) unknown = joined(unknown, argument.name);
  }
  return unknown.empty() ? "" : "  // " + unknown + " ?: not in the file";
}

/// The declaration of the layer's module.
std::string declaration(const RecognisedLayer& layer) {
  std::string arguments, options;
  for (const auto& [name, value, is_option] : layer.arguments) {
    if (!is_option) {
      arguments = joined(arguments, value ? std::to_string(*value) : name);
    } else if (value) {
      options += '.' + name + '(' + std::to_string(*value) + ')';
    }
  }
  if (!options.empty()) arguments = layer.module + "Options(" + arguments + ')' + options;
  return layer.module + " layer(" + arguments + ");" + remark(layer);
}

/// "start, attn::LoadOptions()" and what is set, on two lines where one would be too long.
std::string with_options(const std::string& start, const std::string& set) {
  constexpr std::size_t kLine = 96;  // the command indents it
  if (set.empty()) return start;
  const std::string options = "attn::LoadOptions()" + set;
  const bool is_long = start.size() + options.size() + 4 > kLine;
  return start + (is_long ? ",\n" + std::string(start.find('(') + 1, ' ') : ", ") + options;
}

}  // namespace

std::string RecognisedLayer::title() const {
  std::string text;
  for (const auto& [name, value, is_option] : arguments) {
    const bool is_plain = value && !module.empty() && !name.ends_with("heads");
    text = joined(text, (is_plain ? "" : name + ' ') + (value ? std::to_string(*value) : "?"));
  }
  const bool is_own = module.starts_with("attn::");
  return (module.empty() ? layout : module.substr(is_own ? 6 : 0)) + '(' + text + ')';
}

std::string RecognisedLayer::code(const std::string& path) const {
  const std::string of_prefix = prefix.empty() ? "" : ".prefix(" + literal(prefix) + ')';
  if (module.empty()) {
    return "const attn::NamedTensors weights = attn::convert_layout(\n" +
           with_options("    attn::read_weights(" + literal(path), of_prefix) + "), " +
           literal(layout) + (needs_heads ? ", n_heads);" : ");") + remark(*this);
  }
  const std::string of_layout = layout.empty() ? "" : ".layout(" + literal(layout) + ')';
  return declaration(*this) + '\n' +
         with_options("attn::load_weights(layer, " + literal(path),
                      of_prefix + of_layout + (others > 0 ? ".strict(false)" : "")) +
         ");";
}

}  // namespace attn
