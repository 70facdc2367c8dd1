#include <algorithm>
#include <string>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/torch_pickle.h"

/// Storages and tensors as PyTorch pickles them: persistent ids, and calls of `_rebuild_tensor_v2`
/// and its kin. Every argument is checked.
namespace attn::formats {
namespace {

using Index = PickleValue::Index;
using enum PickleKind;
using enum GlobalRole;

/// What a value is, for error texts.
std::string text_of(const PickleValue& value) {
  if (value.kind == kInt && value.text.empty()) return std::to_string(value.integer);
  if (value.kind == kInt) return "an int beyond 64 bits";
  if (value.kind == kString) return in_quotes(value.text);
  if (value.kind == kGlobal) return "class " + in_quotes(value.text);
  return std::string(name_of(value.kind));
}

std::uint64_t natural_number(const PickleValue& value, std::string_view what) {
  if (value.kind != kInt || !value.text.empty() || value.integer < 0) {
    refuse(what, "an int of 0 or more", text_of(value));
  }
  return static_cast<std::uint64_t>(value.integer);
}

std::string_view text_argument(const PickleValue& value, std::string_view what) {
  // Python 2 and protocol 0 have bytes where Python 3 has text.
  if (value.kind != kString && value.kind != kBytes) refuse(what, "a string", text_of(value));
  return value.text;
}

void check_count(std::string_view what, std::size_t count, std::size_t least, std::size_t most) {
  if (count >= least && count <= most) return;
  std::string expected = std::to_string(least);
  if (most > least) expected += " to " + std::to_string(most);
  refuse(what, expected + " arguments", std::to_string(count));
}

std::vector<std::uint64_t> natural_numbers(const TorchPickle& pickle, Index index,
                                           std::string_view what) {
  const TorchNode node = pickle.node(index);
  if (node.kind != TorchNode::Kind::kSequence) {
    refuse(what, "a tuple", text_of(pickle.pickle()[index]));
  }
  if (node.items.size() > kMaxDimensions) {
    refuse(what, "at most " + std::to_string(kMaxDimensions) + " dimensions",
           std::to_string(node.items.size()));
  }
  std::vector<std::uint64_t> numbers;
  for (const Index item : node.items)
    numbers.push_back(natural_number(pickle.pickle()[item], what));
  return numbers;
}

/// The conjugate and negative bits of a view, which say that its numbers are not those in memory.
void check_metadata(const TorchPickle& pickle, Index index) {
  const TorchNode node = pickle.node(index);
  if (pickle.pickle()[index].kind == kNone) return;
  if (node.kind != TorchNode::Kind::kMapping || node.items_are_pairs) {
    refuse("metadata", "a dict", text_of(pickle.pickle()[index]));
  }
  // Many tensors may share it.
  constexpr std::size_t kMostItems = 64;
  if (node.items.size() > kMostItems) refuse("metadata", "a few values", "many");
  for (std::size_t i = 1; i < node.items.size(); i += 2) {
    const PickleValue& value = pickle.pickle()[node.items[i]];
    if (value.kind == kBool && value.integer == 0) continue;
    refuse("metadata", "numbers as they lie in memory",
           "a view with " + text_of(pickle.pickle()[node.items[i - 1]]) + " set");
  }
}

/// What is set in a tensor changes its memory or its place in PyTorch, which never pickles it so.
void check_untouched(const PickleValue& object) {
  if (object.state == PickleValue::kNothing && object.item_count == 0) return;
  refuse("call", "a tensor as it was made", "one with a state or items set in it");
}

}  // namespace

bool TorchPickle::is_storage(Index persistent) const {
  const PickleValue& id = pickle_[pickle_[persistent].arguments];
  return id.kind == kTuple && id.item_count > 0 && pickle_[pickle_.items(id)[0]].text == "storage";
}

TorchStorage TorchPickle::storage(Index persistent) const {
  constexpr std::string_view kWhere = "persistent id";
  const PickleValue& value = pickle_[persistent];
  if (value.kind != kPersistent) refuse("storage", "a storage", text_of(value));
  const PickleValue& id = pickle_[value.arguments];
  if (id.kind != kTuple) refuse(kWhere, "a tuple", text_of(id));
  const auto items = pickle_.items(id);
  check_count(kWhere, items.size(), 5, 6);
  if (const auto kind = text_argument(pickle_[items[0]], "persistent id, kind");
      kind != "storage") {
    refuse("persistent id, kind", "\"storage\"", in_quotes(kind));
  }
  TorchStorage storage;
  storage.key = text_argument(pickle_[items[2]], "persistent id, key");
  if (storage.key.size() > kMaxStorageKey) {
    refuse("persistent id, key", "at most " + std::to_string(kMaxStorageKey) + " bytes",
           std::to_string(storage.key.size()));
  }
  const std::string where = "storage " + in_quotes(storage.key);
  const KnownGlobal* known = global(items[1]);
  if (!known || known->role != kStorage) {
    refuse(where, "a class of dense storages", text_of(pickle_[items[1]]));
  }
  storage.type = known->type;
  text_argument(pickle_[items[3]], where + ", location");
  storage.elements = natural_number(pickle_[items[4]], where + ", number of elements");
  if (items.size() == 6 && pickle_[items[5]].kind != kNone) {
    const auto view = pickle_.items(items[5]);
    if (pickle_[items[5]].kind != kTuple) refuse(where + ", view", "a tuple", "no tuple");
    check_count(where + ", view", view.size(), 3, 3);
    storage.view = {natural_number(pickle_[view[1]], where + ", offset of a view"),
                    natural_number(pickle_[view[2]], where + ", size of a view")};
  }
  return storage;
}

TorchPickle::Tensor TorchPickle::tensor(Index index) const {
  const PickleValue& object = pickle_[index];
  const KnownGlobal* callable = object.kind == kObject ? global(object.callable) : nullptr;
  Index arguments = object.arguments;
  check_untouched(object);
  // Parameters and classes around the tensor itself.
  for (std::size_t depth = 0; depth < kMaxDepth; ++depth) {
    if (!callable) refuse("call", "a function that makes a tensor", "none");
    const auto items = pickle_.items(arguments);
    if (callable->role == kRebuildParameter) {
      check_count("_rebuild_parameter", items.size(), 3, 4);
      const PickleValue& inner = pickle_[items[0]];
      if (inner.kind != kObject) refuse("_rebuild_parameter", "a tensor", text_of(inner));
      check_untouched(inner);
      callable = global(inner.callable);
      arguments = inner.arguments;
    } else if (callable->role == kRebuildFromType) {
      check_count("_rebuild_from_type", items.size(), 4, 4);
      const KnownGlobal* type = global(items[1]);
      if (!type || type->role != kTensorClass) {
        refuse("_rebuild_from_type", "torch.Tensor or a parameter", text_of(pickle_[items[1]]));
      }
      if (pickle_[items[2]].kind != kTuple) {
        refuse("_rebuild_from_type", "a tuple of arguments", text_of(pickle_[items[2]]));
      }
      callable = global(items[0]);
      arguments = items[2];
    } else {
      return rebuild(callable->role, items);
    }
  }
  refuse("call", "at most " + std::to_string(kMaxDepth) + " calls around a tensor", "more");
}

TorchPickle::Tensor TorchPickle::rebuild(GlobalRole role, std::span<const Index> arguments) const {
  const std::size_t count = arguments.size();
  switch (role) {
    case kRebuildTensor:
      check_count("_rebuild_tensor", count, 4, 4);
      break;
    case kRebuildTensorV2:
      check_count("_rebuild_tensor_v2", count, 6, 7);
      break;
    case kRebuildTensorV3:
      check_count("_rebuild_tensor_v3", count, 7, 8);
      break;
    default:
      refuse("call", "a function that makes a tensor", "another one");
  }
  Tensor result{.storage = arguments[0], .tensor = {}};
  const auto type = storage(arguments[0]).type;
  result.tensor.offset = natural_number(pickle_[arguments[1]], "storage offset");
  result.tensor.sizes = natural_numbers(*this, arguments[2], "sizes");
  result.tensor.strides = natural_numbers(*this, arguments[3], "strides");
  if (count > 4) {
    if (const PickleValue& grad = pickle_[arguments[4]]; grad.kind != kBool) {
      refuse("requires_grad", "a bool", text_of(grad));
    }
    const PickleValue& hooks = pickle_[arguments[5]];
    if (node(arguments[5]).kind != TorchNode::Kind::kMapping && hooks.kind != kNone) {
      refuse("backward hooks", "a dict", text_of(hooks));
    }
  }
  const std::size_t metadata = role == kRebuildTensorV3 ? 7 : 6;
  if (count > metadata) check_metadata(*this, arguments[metadata]);
  if (role == kRebuildTensorV3) {
    const KnownGlobal* dtype = global(arguments[6]);
    if (!dtype || dtype->role != kDtype || !dtype->type) {
      refuse("dtype", "one of whole numbers of bytes", text_of(pickle_[arguments[6]]));
    }
    result.tensor.type = *dtype->type;
  } else {
    if (!type) refuse("storage", "a typed storage", "an untyped one");
    result.tensor.type = *type;
  }
  return result;
}

}  // namespace attn::formats
