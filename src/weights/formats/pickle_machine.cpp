#include "weights/formats/pickle_machine.h"

#include <algorithm>
#include <string>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/little_endian.h"
#include "weights/formats/pickle_text.h"

namespace attn::formats {
namespace {

constexpr std::size_t kMemoSlack = 65'536;

[[noreturn]] void refuse(const std::string& expected, const std::string& got) {
  throw FormatError("expected " + expected + ", got " + got);
}

}  // namespace

PickleBytes::PickleBytes(std::string_view bytes) : bytes_(bytes.substr(0, kMaxPickle)) {}

std::string_view PickleBytes::take(std::uint64_t count) {
  check_present(count);
  if (at_ < frame_end_ && count > frame_end_ - at_) {
    refuse(std::to_string(count) + " more bytes in its frame", std::to_string(frame_end_ - at_));
  }
  const std::string_view taken = bytes_.substr(at_, count);
  at_ += count;
  return taken;
}

std::uint64_t PickleBytes::number(std::size_t size) { return little_endian(take(size), 0, size); }

std::string_view PickleBytes::line() {
  const std::size_t end = bytes_.find('\n', at_);
  if (end == bytes_.npos) refuse("the end of a line", "the end of the bytes");
  const std::string_view taken = take(end + 1 - at_);
  return taken.substr(0, taken.size() - 1);
}

std::uint64_t PickleBytes::line_number() {
  const std::string_view digits = line();
  const auto number = int_from_digits(digits);
  if (!number || !number->text.empty() || number->integer < 0)
    refuse("a number", in_quotes(digits));
  return static_cast<std::uint64_t>(number->integer);
}

void PickleBytes::begin_frame(std::uint64_t length) {
  if (at_ < frame_end_) refuse("the end of the frame before it", "another frame");
  check_present(length);
  frame_end_ = at_ + length;
}

void PickleBytes::check_present(std::uint64_t count) const {
  if (count <= bytes_.size() - at_) return;
  if (bytes_.size() == kMaxPickle) {
    refuse("an end within " + std::to_string(kMaxPickle) + " bytes", "none");
  }
  refuse(std::to_string(count) + " more bytes", std::to_string(bytes_.size() - at_));
}

std::span<const PickleStack::Index> PickleStack::top(std::size_t count) const {
  const std::size_t here = values_.size() - (marks_.empty() ? 0 : marks_.back());
  if (count > here) refuse(std::to_string(count) + " values on the stack", std::to_string(here));
  return std::span(values_).last(count);
}

void PickleStack::mark() {
  if (marks_.size() >= kMaxDepth) {
    refuse("at most " + std::to_string(kMaxDepth) + " marks at a time", "more");
  }
  marks_.push_back(values_.size());
}

std::span<const PickleStack::Index> PickleStack::marked() const {
  if (marks_.empty()) refuse("a mark", "none");
  return std::span(values_).subspan(marks_.back());
}

PickleStack::Index PickleStack::below_mark() const {
  const std::size_t before = marks_.size() < 2 ? 0 : marks_[marks_.size() - 2];
  if (marks_.empty() || marks_.back() == before) refuse("a value below a mark", "none");
  return values_[marks_.back() - 1];
}

void PickleStack::drop_marked() {
  drop(marked().size());
  marks_.pop_back();
}

void PickleStack::remember(std::uint64_t index, std::size_t position) {
  if (index >= std::min(position + kMemoSlack, kMaxPickleOpcodes))
    refuse("an index near its position", std::to_string(index));
  const Index value = top(1)[0];
  if (index >= memo_.size()) memo_.resize(index + 1, PickleValue::kNothing);
  if (memo_[index] == PickleValue::kNothing) ++remembered_;
  memo_[index] = value;
}

PickleStack::Index PickleStack::recall(std::uint64_t index) const {
  if (index >= memo_.size() || memo_[index] == PickleValue::kNothing) {
    refuse("an index that was remembered", std::to_string(index));
  }
  return memo_[index];
}

}  // namespace attn::formats
