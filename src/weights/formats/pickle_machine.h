#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weights/formats/pickle.h"

/// The two halves of the machine that a pickle is a program for. Their errors are FormatErrors of
/// the form "expected …, got …", without a place.
namespace attn::formats {

/// The bytes of a pickle, taken from the front.
class PickleBytes {
 public:
  explicit PickleBytes(std::string_view bytes);

  std::size_t position() const { return at_; }
  std::string_view take(std::uint64_t count);
  /// A number of `size` bytes, the lowest first.
  std::uint64_t number(std::size_t size);
  /// Up to the next newline, which is taken as well.
  std::string_view line();
  /// A line of decimal digits.
  std::uint64_t line_number();
  /// Declares that the next bytes belong together.
  void begin_frame(std::uint64_t length);

 private:
  void check_present(std::uint64_t count) const;

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t frame_end_ = 0;
};

/// The values at hand: a stack with marks, and a numbered memo.
class PickleStack {
 public:
  using Index = PickleValue::Index;

  void push(Index value) { values_.push_back(value); }
  /// The topmost values, the lowest first; they lie above the topmost mark.
  std::span<const Index> top(std::size_t count) const;
  void drop(std::size_t count) { values_.resize(values_.size() - count); }

  void mark();
  bool at_mark() const { return !marks_.empty() && marks_.back() == values_.size(); }
  /// The values above the topmost mark.
  std::span<const Index> marked() const;
  /// The value below the topmost mark.
  Index below_mark() const;
  void drop_marked();

  /// Remembers the topmost value. Python numbers what it remembers one by one, so an index may not
  /// be far beyond the `position` in the pickle: a hostile 4e9 would cost that many entries.
  void remember(std::uint64_t index, std::size_t position);
  /// Remembers the topmost value as the next one.
  void remember_next(std::size_t position) { remember(remembered_, position); }
  Index recall(std::uint64_t index) const;

 private:
  std::vector<Index> values_;
  std::vector<std::size_t> marks_;
  std::vector<Index> memo_;
  std::size_t remembered_ = 0;
};

}  // namespace attn::formats
