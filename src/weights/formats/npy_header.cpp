#include "weights/formats/npy_header.h"

#include <algorithm>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/little_endian.h"
#include "weights/formats/npy.h"
#include "weights/formats/npy_type.h"

namespace attn::formats {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kMagic = "\x93NUMPY"sv;
constexpr std::string_view kBlank = " \t\r\n"sv;

[[noreturn]] void refuse(std::string_view place, const std::string& rule) {
  throw FormatError(".npy header: " + std::string(place) + ": " + rule);
}

/// Reads the text of a dict as `repr` writes it, from left to right.
class DictReader {
 public:
  explicit DictReader(std::string_view text) : text_(text) {}

  NpyHeader read() {
    expect('{');
    while (!take('}')) {
      const std::string_view key = string("a key in quotes");
      expect(':');
      value(key);
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_blank();
    if (at_ < text_.size()) fail("its end");
    if (!seen_descr_) refuse("descr", "expected a type, got nothing");
    if (!seen_order_) refuse("fortran_order", "expected True or False, got nothing");
    if (!seen_shape_) refuse("shape", "expected a tuple of sizes, got nothing");
    return header_;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw FormatError(".npy header: expected " + std::string(expected) + " at its character " +
                      std::to_string(at_) + ", got " +
                      (at_ < text_.size() ? in_quotes(text_.substr(at_, 20)) : "its end"));
  }

  void skip_blank() { at_ = std::min(text_.find_first_not_of(kBlank, at_), text_.size()); }

  /// Whether the next character is this; it is passed then.
  bool take(char c) {
    skip_blank();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    skip_blank();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail("'" + std::string(1, c) + "'");
  }

  /// A string in quotes; none that matters has escapes.
  std::string_view string(std::string_view expected) {
    skip_blank();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail(expected);
    const std::size_t end = text_.find_first_of("'\"\\\n"sv, at_ + 1);
    if (end == text_.npos || text_[end] != quote) fail(expected);
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  void value(std::string_view key) {
    bool* const seen = key == "descr"           ? &seen_descr_
                       : key == "fortran_order" ? &seen_order_
                       : key == "shape"         ? &seen_shape_
                                                : nullptr;
    if (seen == nullptr) refuse(in_quotes(key), "expected descr, fortran_order and shape alone");
    if (*seen) refuse(key, "expected once, got twice");
    *seen = true;
    if (seen == &seen_descr_) read_type();
    if (seen == &seen_order_) {
      header_.fortran_order = take("True"sv);
      if (!header_.fortran_order && !take("False"sv)) fail("True or False");
    }
    if (seen == &seen_shape_) read_shape();
  }

  void read_type() {
    skip_blank();
    if (text_.substr(at_).starts_with('[') || text_.substr(at_).starts_with('('))
      refuse("descr", "expected a bool, integer, float or complex type, got a structured one");
    const NpyType type = npy_type_named(string("a type in quotes"));
    header_.type = type.type;
    header_.swapped = type.swapped;
  }

  void read_shape() {
    expect('(');
    while (!take(')')) {
      if (header_.sizes.size() == kMaxDimensions)
        refuse("shape", "expected at most " + std::to_string(kMaxDimensions) + " sizes, got more");
      header_.sizes.push_back(size());
      // A tuple of one has its comma: without, it is no tuple.
      const bool comma = take(',');
      if (!comma && header_.sizes.size() == 1) fail("','");
      if (!comma) {
        expect(')');
        break;
      }
    }
  }

  std::uint64_t size() {
    skip_blank();
    const std::size_t start = at_;
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value))
        refuse("shape", "expected sizes below 2^64, got more");
    }
    // No sign, and as in Python no zero in front.
    if (at_ == start || (text_[start] == '0' && at_ > start + 1)) {
      at_ = start;
      fail("a size");
    }
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2's long
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool seen_descr_ = false, seen_order_ = false, seen_shape_ = false;
};

/// Bytes before the text of a header, by its version.
std::size_t start_bytes(std::string_view file) {
  if (!begins_like_npy(file)) throw FormatError("expected a .npy file, got something else");
  if (file.size() < 8) refuse("version", "expected 1, 2 or 3, got the end of the file");
  const std::uint64_t major = little_endian(file, 6, 1);
  const std::uint64_t minor = little_endian(file, 7, 1);
  if (major < 1 || major > 3 || minor != 0) {
    refuse("version",
           "expected 1.0, 2.0 or 3.0, got " + std::to_string(major) + "." + std::to_string(minor));
  }
  return major == 1 ? kNpyStartBytes - 2 : kNpyStartBytes;
}

}  // namespace

bool begins_like_npy(std::string_view start) { return start.starts_with(kMagic); }

std::size_t npy_header_bytes(std::string_view start) {
  const std::size_t fixed = start_bytes(start);
  if (start.size() < fixed) refuse("length", "expected a number, got the end of the file");
  const std::uint64_t length = little_endian(start, 8, fixed - 8);
  if (length > kMaxNpyHeader) {
    refuse("length", "expected at most " + std::to_string(kMaxNpyHeader) + " bytes, got " +
                         std::to_string(length));
  }
  return fixed + length;
}

NpyHeader parse_npy_header(std::string_view header) {
  return DictReader(header.substr(start_bytes(header))).read();
}

std::string npy_header_text(ElementType type, const std::vector<std::uint64_t>& sizes) {
  std::string text = "{'descr': '" + npy_type_name(type) + "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  text += sizes.size() == 1 ? ",), }" : "), }";
  // NumPy leaves room for the first size to grow to 21 digits, then fills up to the next multiple of 64.
  if (!sizes.empty()) text.append(21 - std::to_string(sizes[0]).size(), ' ');
  constexpr std::size_t kStart = kNpyStartBytes - 2, kAlignment = 64;
  const std::size_t used = kStart + text.size() + 1;
  text.append(kAlignment - used % kAlignment, ' ');
  text += '\n';

  std::string header(kMagic);
  append_little_endian(header, 1, 2);  // version 1.0
  append_little_endian(header, text.size(), 2);
  return header + text;
}

}  // namespace attn::formats
