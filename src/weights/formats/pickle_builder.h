#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "weights/formats/pickle.h"

namespace attn::formats {

/// Makes the values of a pickle, within its limits.
/// Its errors are FormatErrors of the form "expected …, got …", without a place.
class PickleBuilder {
 public:
  using Index = PickleValue::Index;

  Pickle pickle;

  Index add(PickleValue value);
  /// A value that is the same one each time: None, an empty tuple, …
  Index constant(PickleKind kind, std::int64_t integer = 0);
  /// A string of UTF-8, whose bytes outlive the pickle.
  Index string(std::string_view text);
  /// A string of Python 2: bytes, where it is no UTF-8.
  Index old_string(std::string_view text);
  /// Keeps a text that the pickle's bytes do not have.
  std::string_view keep(std::string text);
  /// The class or function of this name, the same value each time.
  Index global(std::string_view module, std::string_view name);
  Index container(PickleKind kind, std::span<const Index> items);
  Index object(Index callable, Index arguments);

  /// Appends to a list or set, or to an object.
  void append(Index target, PickleKind kind, std::span<const Index> items);
  /// Sets key, value, … in a dict or an object.
  void set(Index target, std::span<const Index> items);
  void build(Index target, Index state);

 private:
  void extend(PickleValue& value, std::span<const Index> items);

  std::map<std::int64_t, Index> constants_;
  std::map<std::string_view, Index> globals_;
  /// Bytes of the names of classes that were put together.
  std::size_t named_ = 0;
};

}  // namespace attn::formats
