#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attn::formats {

enum class PickleKind : std::uint8_t {
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

/// "int", "list", …: what Python calls a value of this kind.
std::string_view name_of(PickleKind kind);

/// A value of a pickle. Values refer to each other by index, so that shared and recursive ones are
/// what they are, and none is freed recursively. 48 bytes, and no more than a byte of the pickle
/// need stand behind one.
struct PickleValue {
  using Index = std::uint32_t;
  static constexpr Index kNothing = ~Index{0};

  PickleKind kind = PickleKind::kNone;
  /// kDict, and kObject where something was set in it: its items are key, value, key, …
  bool pairs = false;
  /// kObject: what would have been called, with which arguments (a tuple), and the last state that
  /// BUILD gave, if any. kPersistent: its id, as `arguments`.
  Index callable = kNothing;
  Index arguments = kNothing;
  Index state = kNothing;
  /// Where its items lie; see `Pickle::items`.
  std::uint32_t first_item = 0;
  std::uint32_t item_count = 0;
  /// kBool; kInt where it fits; the bits of a kFloat.
  std::int64_t integer = 0;
  /// kString: UTF-8, surrogates in three bytes each. kBytes. kGlobal: "module.name". kInt beyond 64
  /// bits: as the pickle has it, decimal digits or two's complement, the lowest byte first.
  std::string_view text = {};
};

/// The values of a pickle, whose bytes must outlive it.
struct Pickle {
  using Index = PickleValue::Index;

  std::vector<PickleValue> values;
  Index root = PickleValue::kNothing;
  /// Bytes of the pickle, STOP included: what follows is not looked at.
  std::size_t size = 0;
  /// Every class and function that is named, once, in the order met.
  std::vector<Index> globals;
  /// Every kPersistent, in the order met.
  std::vector<Index> persistents;
  /// The items of all values.
  std::vector<Index> pool;
  /// Texts that the pickle's bytes do not have as they are.
  std::deque<std::string> texts;

  const PickleValue& operator[](Index index) const { return values[index]; }
  /// Elements of a tuple, list or set; key, value, key, … of a dict. Of an object: what was appended
  /// to it, or set in it, afterwards.
  std::span<const Index> items(const PickleValue& value) const {
    return std::span(pool).subspan(value.first_item, value.item_count);
  }
  std::span<const Index> items(Index index) const { return items(values[index]); }
};

/// Reads a pickle of protocol 0 to 5 as data. Nothing is imported or called, whatever it names.
///
/// At most kMaxPickle bytes, kMaxPickleOpcodes opcodes, kMaxPickleValues values and kMaxDepth marks
/// at a time. None, True,
/// False, the empty tuple, ints of a byte and classes of one name are one value each.
/// @throws FormatError naming the opcode and its byte
Pickle read_pickle(std::string_view bytes);

}  // namespace attn::formats
