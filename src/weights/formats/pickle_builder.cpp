#include "weights/formats/pickle_builder.h"

#include <algorithm>
#include <array>
#include <bit>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/utf8.h"

namespace attn::formats {
namespace {

/// Names are kept, so that neither many nor long ones may be put together from few bytes.
constexpr std::size_t kMaxGlobals = 10'000;
constexpr std::size_t kMaxGlobalName = 512;

[[noreturn]] void refuse(std::string_view expected, std::string_view got) {
  throw FormatError("expected " + std::string(expected) + ", got " + std::string(got));
}

/// Items that fit before a list must move: a power of two.
std::size_t capacity(std::size_t count) {
  return count == 0 ? 0 : std::max<std::size_t>(4, std::bit_ceil(count));
}

}  // namespace

std::string_view name_of(PickleKind kind) {
  constexpr std::array<std::string_view, 13> kNames = {
      "None", "bool", "int", "float", "str",           "bytes", "tuple",
      "list", "dict", "set", "class", "persistent id", "object"};
  return kNames[static_cast<std::size_t>(kind)];
}

PickleBuilder::Index PickleBuilder::add(PickleValue value) {
  if (pickle.values.size() >= kMaxPickleValues) {
    refuse("at most " + std::to_string(kMaxPickleValues) + " values", "more");
  }
  pickle.values.push_back(value);
  return static_cast<Index>(pickle.values.size() - 1);
}

PickleBuilder::Index PickleBuilder::constant(PickleKind kind, std::int64_t integer) {
  const auto [place, fresh] =
      constants_.try_emplace(static_cast<std::int64_t>(kind) << 8 | integer, Index{0});
  if (fresh) place->second = add({.kind = kind, .integer = integer});
  return place->second;
}

PickleBuilder::Index PickleBuilder::string(std::string_view text) {
  if (!is_utf8(text, /*surrogates=*/true)) refuse("UTF-8", "other bytes");
  return add({.kind = PickleKind::kString, .text = text});
}

PickleBuilder::Index PickleBuilder::old_string(std::string_view text) {
  const auto kind = is_utf8(text) ? PickleKind::kString : PickleKind::kBytes;
  return add({.kind = kind, .text = text});
}

std::string_view PickleBuilder::keep(std::string text) {
  return pickle.texts.emplace_back(std::move(text));
}

PickleBuilder::Index PickleBuilder::global(std::string_view module, std::string_view name) {
  if (module.size() + name.size() >= kMaxGlobalName) {
    refuse("a name below " + std::to_string(kMaxGlobalName) + " bytes",
           std::to_string(module.size() + name.size()));
  }
  // Each time it is put together, and STACK_GLOBAL needs few bytes for long names.
  named_ += module.size() + name.size();
  if (named_ > kMaxNameBytes) {
    refuse("at most " + std::to_string(kMaxNameBytes) + " bytes of names", "more");
  }
  if (!is_utf8(module) || !is_utf8(name)) refuse("a name in UTF-8", "other bytes");
  std::string whole = std::string(module) + '.' + std::string(name);
  if (const auto known = globals_.find(whole); known != globals_.end()) return known->second;
  if (globals_.size() >= kMaxGlobals) {
    refuse("at most " + std::to_string(kMaxGlobals) + " different names", "more");
  }
  const Index index = add({.kind = PickleKind::kGlobal, .text = keep(std::move(whole))});
  globals_.emplace(pickle[index].text, index);
  pickle.globals.push_back(index);
  return index;
}

PickleBuilder::Index PickleBuilder::container(PickleKind kind, std::span<const Index> items) {
  PickleValue value{.kind = kind, .pairs = kind == PickleKind::kDict};
  value.first_item = static_cast<Index>(pickle.pool.size());
  value.item_count = static_cast<Index>(items.size());
  if (value.pairs && items.size() % 2 != 0) refuse("keys with values", "a key without one");
  const Index index = add(value);
  pickle.pool.insert(pickle.pool.end(), items.begin(), items.end());
  // What may grow has the room that its count says it has.
  if (kind != PickleKind::kTuple) pickle.pool.resize(value.first_item + capacity(items.size()));
  return index;
}

PickleBuilder::Index PickleBuilder::object(Index callable, Index arguments) {
  return add({.kind = PickleKind::kObject, .callable = callable, .arguments = arguments});
}

void PickleBuilder::append(Index target, PickleKind kind, std::span<const Index> items) {
  PickleValue& value = pickle.values[target];
  const bool fits = value.kind == kind ||
                    (value.kind == PickleKind::kObject && (!value.pairs || value.item_count == 0));
  if (!fits) refuse("a " + std::string(name_of(kind)) + " below", name_of(value.kind));
  value.pairs = false;
  extend(value, items);
}

void PickleBuilder::set(Index target, std::span<const Index> items) {
  PickleValue& value = pickle.values[target];
  const bool fits = value.kind == PickleKind::kDict ||
                    (value.kind == PickleKind::kObject && (value.pairs || value.item_count == 0));
  if (!fits) refuse("a dict below", name_of(value.kind));
  if (items.size() % 2 != 0) refuse("keys with values", "a key without one");
  value.pairs = true;
  extend(value, items);
}

void PickleBuilder::build(Index target, Index state) {
  PickleValue& value = pickle.values[target];
  if (value.kind != PickleKind::kObject) refuse("an object below", name_of(value.kind));
  value.state = state;
}

void PickleBuilder::extend(PickleValue& value, std::span<const Index> items) {
  std::vector<Index>& pool = pickle.pool;
  const std::size_t count = value.item_count + items.size();
  if (const std::size_t room = capacity(count); room > capacity(value.item_count)) {
    const bool last = value.first_item + capacity(value.item_count) == pool.size();
    const std::size_t first = last && value.item_count > 0 ? value.first_item : pool.size();
    pool.resize(first + room);
    if (first != value.first_item) {
      std::copy_n(pool.begin() + value.first_item, value.item_count,
                  pool.begin() + static_cast<std::ptrdiff_t>(first));
    }
    value.first_item = static_cast<Index>(first);
  }
  std::ranges::copy(items, pool.begin() + value.first_item + value.item_count);
  value.item_count = static_cast<Index>(count);
}

}  // namespace attn::formats
