#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weights/formats/pickle.h"
#include "weights/formats/stored_file.h"
#include "weights/formats/torch_globals.h"

namespace attn::formats {

/// What a value of a checkpoint is: a tensor, something with named or numbered values inside, or
/// neither.
struct TorchNode {
  enum class Kind { kLeaf, kTensor, kMapping, kSequence };

  Kind kind = Kind::kLeaf;
  /// "int", "OrderedDict", …
  std::string_view what;
  /// kMapping: key, value, key, …, or pairs; kSequence: elements.
  std::span<const PickleValue::Index> items = {};
  /// kMapping: each item is a list or tuple of a key and its value, as Python 2 pickles them.
  bool items_are_pairs = false;
};

/// Refuses a class that is not known, by its name.
[[noreturn]] void refuse_class(std::string_view name);

/// A storage as its persistent id describes it.
struct TorchStorage {
  std::string_view key;
  /// None where it is untyped; its elements are bytes then.
  std::optional<ElementType> type;
  std::uint64_t elements = 0;
  /// Old legacy files: the tensor sees only so many elements of it, from an offset.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> view;

  std::uint64_t element_size() const { return type ? bits_of(*type) / 8 : 1; }
};

/// Where a reader keeps a storage.
struct PlacedStorage {
  /// An index into `StoredFile::storages`.
  std::size_t index = 0;
  /// The bytes that tensors of it may see.
  std::uint64_t size = 0;
};

/// A pickle of PyTorch, understood: its classes are known, or kept as opaque ones.
class TorchPickle {
 public:
  using Index = PickleValue::Index;

  /// @throws FormatError naming a class that is not known, unless `opaque`
  TorchPickle(const Pickle& pickle, bool opaque);

  const Pickle& pickle() const { return pickle_; }
  /// The classes that are not known, in the order met.
  const std::vector<std::string>& opaque() const { return opaque_; }

  TorchNode node(Index index) const;
  /// The role of a class or function, and of nothing else.
  const KnownGlobal* global(Index index) const;

  /// Whether a persistent id is that of a storage, good or bad. Whole modules have others.
  bool is_storage(Index persistent) const;
  /// The storage of a persistent id.
  /// @throws FormatError
  TorchStorage storage(Index persistent) const;

  /// A tensor, in the storage that it names. Its place inside the storage is not checked.
  struct Tensor {
    Index storage = PickleValue::kNothing;
    StoredTensor tensor;
  };
  /// @throws FormatError of the form "argument: expected …, got …"
  Tensor tensor(Index index) const;

 private:
  Tensor rebuild(GlobalRole role, std::span<const Index> arguments) const;
  TorchNode object_node(const PickleValue& object) const;
  TorchNode dict_node(const PickleValue& object, std::string_view what) const;

  const Pickle& pickle_;
  std::map<Index, KnownGlobal> globals_;
  std::vector<std::string> opaque_;
};

}  // namespace attn::formats
