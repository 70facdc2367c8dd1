#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attn::formats {

enum class PickleKind {
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kBytes,
  kTuple,
  kList,
  kDict,
  kSet,
  /// A class or function: its name, never the thing itself.
  kGlobal,
  /// What the pickler left to its user: a storage.
  kPersistent,
  /// What Python would have made by calling something: nothing is called here.
  kObject,
};

/// A value of a pickle. Values refer to each other by index, so that shared and recursive ones are
/// what they are, and none is freed recursively.
struct PickleValue {
  using Index = std::uint32_t;
  static constexpr Index kNothing = ~Index{0};

  PickleKind kind = PickleKind::kNone;
  /// kBool, and kInt where it fits.
  std::int64_t integer = 0;
  /// kFloat.
  double real = 0.0;
  /// kString (UTF-8), kBytes; kGlobal: "module.name"; kInt beyond 64 bits: "an int beyond 64 bits".
  std::string text;
  /// Elements of a tuple, list or set; key, value, key, … of a dict. Of an object: what was appended
  /// or set to it afterwards, in that form. Of a kPersistent: its id, alone.
  std::vector<Index> items;
  /// kObject: what would have been called, with which arguments (a tuple), and the state that BUILD
  /// gave, if any.
  Index callable = kNothing;
  Index arguments = kNothing;
  Index state = kNothing;
};

struct Pickle {
  std::vector<PickleValue> values;
  PickleValue::Index root = PickleValue::kNothing;
  /// Bytes of the pickle, STOP included: what follows is not looked at.
  std::size_t size = 0;

  const PickleValue& operator[](PickleValue::Index index) const { return values[index]; }
};

/// Reads a pickle of protocol 0 to 5 as data. Nothing is imported or called, whatever it names.
///
/// At most kMaxPickle bytes, kMaxPickleValues values and kMaxDepth marks at a time.
/// @throws FormatError naming the opcode and its byte
Pickle read_pickle(std::string_view bytes);

}  // namespace attn::formats
