#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

/// Parsers of file formats. They know no torch and check everything that a file declares before
/// acting on it.
namespace attn::formats {

/// A file that breaks its format; the text names the place and the rule.
class FormatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A name from a file as error texts show it: in quotes, shortened to about 100 bytes, and
/// printable.
std::string in_quotes(std::string_view name);

/// Throws the FormatError "where: expected …, got …".
[[noreturn]] void refuse(std::string_view where, std::string_view expected, std::string_view got);

}  // namespace attn::formats
