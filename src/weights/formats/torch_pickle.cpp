#include "weights/formats/torch_pickle.h"

#include <algorithm>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

using Index = PickleValue::Index;
using enum PickleKind;
using enum GlobalRole;
using Kind = TorchNode::Kind;

bool is_list(const PickleValue& value) { return value.kind == kList || value.kind == kTuple; }

}  // namespace

void refuse_class(std::string_view name) {
  const std::string_view kind = unsupported_kind(name);
  if (!kind.empty()) {
    refuse("class " + in_quotes(name), "dense strided tensors", std::string(kind));
  }
  refuse("class " + in_quotes(name), "one that checkpoints of tensors are made of",
         "one that is not known (it was not imported, and nothing of it was run)");
}

TorchPickle::TorchPickle(const Pickle& pickle, bool opaque) : pickle_(pickle) {
  for (const Index index : pickle.globals) {
    const std::string_view name = pickle[index].text;
    if (const auto known = known_global(name)) {
      globals_.emplace(index, *known);
    } else if (opaque) {
      opaque_.emplace_back(name);
    } else {
      refuse_class(name);
    }
  }
  if (opaque) return;
  for (const PickleValue& value : pickle.values) {
    if (value.kind == kObject && pickle[value.callable].kind != kGlobal) {
      refuse("pickle", "a class to make an object of",
             "one that the pickle makes itself (a " +
                 std::string(name_of(pickle[value.callable].kind)) + ")");
    }
  }
  for (const Index persistent : pickle.persistents) storage(persistent);
}

const KnownGlobal* TorchPickle::global(Index index) const {
  const auto known = globals_.find(index);
  return known == globals_.end() ? nullptr : &known->second;
}

TorchNode TorchPickle::node(Index index) const {
  const PickleValue& value = pickle_[index];
  switch (value.kind) {
    case kDict:
      return {Kind::kMapping, "dict", pickle_.items(value)};
    case kList:
    case kTuple:
      return {Kind::kSequence, name_of(value.kind), pickle_.items(value)};
    case kObject:
      return object_node(value);
    case kPersistent:
      return {Kind::kLeaf, "storage"};
    case kGlobal: {
      const KnownGlobal* known = global(index);
      return {Kind::kLeaf, known && known->role == kDtype ? known->what : name_of(kGlobal)};
    }
    default:
      return {Kind::kLeaf, name_of(value.kind)};
  }
}

TorchNode TorchPickle::object_node(const PickleValue& object) const {
  const auto arguments = pickle_.items(object.arguments);
  Index callable = object.callable;
  const KnownGlobal* known = global(callable);
  if (known && known->role == kReconstructor && !arguments.empty()) {
    callable = arguments[0];
    known = global(callable);
  }
  const std::string_view name =
      pickle_[callable].kind == kGlobal ? pickle_[callable].text : name_of(kObject);
  if (!known) return {Kind::kLeaf, name};
  switch (known->role) {
    case kMapping:
      return dict_node(object, known->what);
    case kSequence: {
      const bool made_of =
          object.item_count == 0 && !arguments.empty() && is_list(pickle_[arguments[0]]);
      return {Kind::kSequence, known->what,
              made_of ? pickle_.items(arguments[0]) : pickle_.items(object)};
    }
    case kNamespace:
      if (object.state == PickleValue::kNothing || pickle_[object.state].kind != kDict) break;
      return {Kind::kMapping, known->what, pickle_.items(object.state)};
    case kRebuildFromType:
      // A subclass that is kept as opaque.
      if (arguments.size() > 1 && !global(arguments[1]) && pickle_[arguments[1]].kind == kGlobal) {
        return {Kind::kLeaf, pickle_[arguments[1]].text};
      }
      return {Kind::kTensor, known->what};
    case kRebuildParameter:
      // A parameter of a kind of tensor that is kept as opaque.
      if (!arguments.empty() && pickle_[arguments[0]].kind == kObject &&
          !global(pickle_[arguments[0]].callable)) {
        return object_node(pickle_[arguments[0]]);
      }
      return {Kind::kTensor, known->what};
    case kRebuildTensor:
    case kRebuildTensorV2:
    case kRebuildTensorV3:
      return {Kind::kTensor, known->what};
    default:
      break;
  }
  return {Kind::kLeaf, known->what};
}

TorchNode TorchPickle::dict_node(const PickleValue& object, std::string_view what) const {
  const auto arguments = pickle_.items(object.arguments);
  // The last one: a defaultdict has its factory before it.
  const PickleValue* last = arguments.empty() ? nullptr : &pickle_[arguments.back()];
  if (object.item_count > 0 && !object.pairs) {
    throw FormatError(std::string(what) + ": expected keys with values, got elements of a list");
  }
  if (object.item_count > 0 || !last || (last->kind != kDict && !is_list(*last))) {
    return {Kind::kMapping, what, pickle_.items(object)};
  }
  return {Kind::kMapping, what, pickle_.items(*last), /*items_are_pairs=*/is_list(*last)};
}

}  // namespace attn::formats
