#include "weights/formats/flatten.h"

#include <algorithm>
#include <string>
#include <utility>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/listing.h"

namespace attn::formats {
namespace {

using Index = PickleValue::Index;
using Kind = TorchNode::Kind;

class Flattening {
 public:
  Flattening(const TorchPickle& torch, const PlaceStorage& place, StoredFile& file)
      : torch_(torch), place_(place), listing_(torch.pickle(), file) {}

  void run() {
    enter(torch_.pickle().root);
    while (!levels_.empty()) {
      Level& level = levels_.back();
      name_.resize(level.name_size);
      if (level.next >= level.node.items.size()) {
        levels_.pop_back();
      } else if (level.node.kind == Kind::kSequence) {
        const std::size_t i = level.next++;
        extend_name(std::to_string(i));
        enter(level.node.items[i]);
      } else {
        next_entry(level);
      }
    }
  }

 private:
  struct Level {
    TorchNode node;
    std::size_t next = 0;
    std::size_t name_size = 0;
  };

  /// The next key and value of the dict on top.
  void next_entry(Level& level) {
    const auto items = level.node.items;
    std::pair<Index, Index> entry;
    if (level.node.items_are_pairs) {
      const auto pair = torch_.node(items[level.next]);
      if (pair.kind != Kind::kSequence || pair.items.size() != 2) {
        refuse(place_text(), "pairs of a key and its value", std::string(pair.what));
      }
      entry = {pair.items[0], pair.items[1]};
      level.next += 1;
    } else {
      entry = {items[level.next], items[level.next + 1]};
      level.next += 2;
    }
    if (const auto key = key_text(entry.first)) {
      extend_name(*key);
      enter(entry.second);
    } else {
      // Such as {("a", 1): 2}: nothing that a tensor's name could be made of.
      const std::string_view what = torch_.node(entry.first).what;
      extend_name("(" + std::string(what) + ")");
      listing_.skip(name_, torch_.node(entry.second).what);
    }
  }

  void enter(Index index) {
    listing_.visit(1);
    const TorchNode node = torch_.node(index);
    switch (node.kind) {
      case Kind::kTensor:
        return listing_.add(placed_tensor(torch_, index, name_, place_));
      case Kind::kLeaf:
        return listing_.skip(name_, node.what);
      case Kind::kSequence:
      case Kind::kMapping:
        break;
    }
    // The checkpoint itself may be empty; it is no leaf then.
    const bool leaf = node.items.empty() || (node.kind == Kind::kSequence && all_leaves(node));
    if (leaf && (!levels_.empty() || !node.items.empty())) return listing_.skip(name_, node.what);
    if (levels_.size() >= kMaxDepth) {
      refuse(place_text(), "at most " + std::to_string(kMaxDepth) + " levels of nesting", "more");
    }
    levels_.push_back({node, 0, name_.size()});
  }

  bool all_leaves(const TorchNode& sequence) {
    listing_.visit(sequence.items.size());
    return std::ranges::all_of(sequence.items,
                               [&](Index item) { return torch_.node(item).kind == Kind::kLeaf; });
  }

  /// What a key adds to a name.
  std::optional<std::string> key_text(Index key) const {
    const PickleValue& value = torch_.pickle()[key];
    switch (value.kind) {
      case PickleKind::kString:
        return std::string(value.text);
      case PickleKind::kInt:
        if (!value.text.empty()) return std::nullopt;
        return std::to_string(value.integer);
      case PickleKind::kBool:
        return value.integer ? "True" : "False";
      case PickleKind::kNone:
        return "None";
      default:
        return std::nullopt;
    }
  }

  void extend_name(const std::string& part) {
    // A long key of a shared dict costs its length each time.
    listing_.name_bytes(part.size());
    if (levels_.size() > 1) name_ += '.';
    name_ += part;
  }

  std::string place_text() const { return "entry " + in_quotes(name_); }

  const TorchPickle& torch_;
  const PlaceStorage& place_;
  Listing listing_;
  std::vector<Level> levels_;
  /// The joined name of where we are.
  std::string name_;
};

}  // namespace

StoredTensor placed_tensor(const TorchPickle& torch, Index index, const std::string& name,
                           const PlaceStorage& place) {
  try {
    auto [persistent, tensor] = torch.tensor(index);
    tensor.name = name;
    const PlacedStorage placed = place(persistent, tensor.type);
    tensor.storage = placed.index;
    if (const auto view = torch.storage(persistent).view) {
      if (__builtin_add_overflow(tensor.offset, view->first, &tensor.offset)) {
        refuse("offset", "one below 2^64", "more");
      }
    }
    check_tensor(tensor, placed.size);
    return tensor;
  } catch (const FormatError& error) {
    // `check_tensor` names the tensor itself.
    const std::string where = "tensor " + in_quotes(name);
    if (std::string_view(error.what()).starts_with(where)) throw;
    throw FormatError(where + ", " + error.what());
  }
}

void flatten(const TorchPickle& torch, const PlaceStorage& place, StoredFile& file) {
  file.opaque = torch.opaque();
  Flattening(torch, place, file).run();
}

}  // namespace attn::formats
