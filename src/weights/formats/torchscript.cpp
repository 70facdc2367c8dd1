#include "weights/formats/torchscript.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "weights/formats/flatten.h"
#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"
#include "weights/formats/listing.h"
#include "weights/formats/pickle.h"
#include "weights/formats/torch_archive.h"
#include "weights/formats/torch_pickle.h"
#include "weights/formats/torchscript_classes.h"

namespace attn::formats {
namespace {

using Index = PickleValue::Index;
using Kind = TorchNode::Kind;

/// What PyTorch pickles in a TorchScript archive besides plain data and dense tensors: objects of the
/// archive's own classes and of those built into PyTorch, and calls that give containers a type.
void check_class(std::string_view name, TorchScriptClasses& classes) {
  const bool known = name.starts_with("__torch__.") || name.starts_with("torch.jit._pickle.") ||
                     classes.find(name);
  if (!known) refuse_class(name);
}

/// Refuses constants of classes that are neither plain data nor PyTorch's. Their values are not used.
void check_constants(const TorchArchive& archive) {
  const std::string bytes = archive.read("constants.pkl", kMaxPickle);
  const Pickle pickle = read_pickle(bytes);
  for (const Index index : pickle.globals) {
    const std::string_view name = pickle[index].text;
    const bool known =
        known_global(name) || name.starts_with("torch.") || name.starts_with("__torch__.");
    if (!known) refuse_class(name);
  }
}

/// Lists a module and those inside it, in the order of Python's state_dict().
class ModuleWalk {
 public:
  ModuleWalk(const TorchPickle& torch, TorchScriptClasses& classes, const PlaceStorage& place,
             StoredFile& file)
      : torch_(torch), classes_(classes), place_(place), listing_(torch.pickle(), file) {}

  void run(Index root) {
    std::vector<Module> waiting = {{root, "", 1}};
    while (!waiting.empty()) {
      const Module module = std::move(waiting.back());
      waiting.pop_back();
      if (module.depth > kMaxDepth) {
        refuse("module " + in_quotes(module.name),
               "at most " + std::to_string(kMaxDepth) + " levels of nesting", "more");
      }
      list(module);
      std::vector<Module> inner = submodules(module);
      std::ranges::move(inner.rbegin(), inner.rend(), std::back_inserter(waiting));
    }
  }

  /// Whether a value is an object of a class that is declared as a module.
  bool is_module(Index index) const {
    const PickleValue& object = torch_.pickle()[index];
    if (object.kind != PickleKind::kObject || object.state == PickleValue::kNothing) return false;
    const TorchScriptClass* declared = declaration(object);
    return declared && declared->is_module &&
           torch_.pickle()[object.state].kind == PickleKind::kDict;
  }

  /// The attributes of a module: name, value, …
  std::span<const Index> attributes(Index module) const {
    return torch_.pickle().items(torch_.pickle()[module].state);
  }

 private:
  struct Module {
    Index object;
    std::string name;
    std::size_t depth;
  };

  const TorchScriptClass* declaration(const PickleValue& object) const {
    const PickleValue& callable = torch_.pickle()[object.callable];
    return callable.kind == PickleKind::kGlobal ? classes_.find(callable.text) : nullptr;
  }

  void list(const Module& module) {
    const TorchScriptClass& declared = *declaration(torch_.pickle()[module.object]);
    const auto items = attributes(module.object);
    listing_.visit(2 * items.size() + 1);
    // A long name of many attributes is compared each time.
    for (std::size_t i = 0; i < items.size(); i += 2)
      listing_.name_bytes(torch_.pickle()[items[i]].text.size());
    const auto is_parameter = [&](Index name) {
      return declared.parameters.contains(torch_.pickle()[name].text);
    };
    const auto is_buffer = [&](Index name) {
      return !is_parameter(name) &&
             (!declared.buffers || declared.buffers->contains(torch_.pickle()[name].text));
    };
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (is_parameter(items[i])) add(module, items[i], items[i + 1], /*declared=*/true);
    }
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (is_buffer(items[i])) {
        add(module, items[i], items[i + 1], declared.buffers.has_value());
      } else if (!is_parameter(items[i]) && torch_.node(items[i + 1]).kind == Kind::kTensor) {
        listing_.skip(joined(module, items[i]), "tensor attribute");
      }
    }
  }

  /// A parameter or buffer, unless it is None; what is not `declared` to be one may be anything.
  void add(const Module& module, Index name, Index value, bool declared) {
    const TorchNode node = torch_.node(value);
    if (node.kind == Kind::kTensor) {
      return listing_.add(placed_tensor(torch_, value, joined(module, name), place_));
    }
    if (declared && torch_.pickle()[value].kind != PickleKind::kNone) {
      refuse("tensor " + in_quotes(joined(module, name)), "a dense tensor", std::string(node.what));
    }
  }

  std::vector<Module> submodules(const Module& module) {
    std::vector<Module> inner;
    const auto items = attributes(module.object);
    for (std::size_t i = 0; i < items.size(); i += 2) {
      if (!is_module(items[i + 1])) continue;
      inner.push_back({items[i + 1], joined(module, items[i]), module.depth + 1});
      listing_.visit(1);
      listing_.name_bytes(inner.back().name.size());
    }
    return inner;
  }

  std::string joined(const Module& module, Index name) const {
    const std::string text(torch_.pickle()[name].text);
    return module.name.empty() ? text : module.name + '.' + text;
  }

  const TorchPickle& torch_;
  TorchScriptClasses& classes_;
  const PlaceStorage& place_;
  Listing listing_;
};

}  // namespace

bool is_torchscript(const ZipArchive& archive) {
  return find_beside_first(archive, "constants.pkl") || find_beside_first(archive, "model.json");
}

StoredFile read_torchscript(std::string_view, const ZipArchive& archive) {
  const TorchArchive folder(archive);
  if (folder.find("model.json")) {
    refuse("archive", "TorchScript of PyTorch 1.4 or newer", "a model.json of an older one");
  }
  const std::string bytes = folder.read("data.pkl", kMaxPickle);
  const Pickle pickle = read_pickle(bytes);
  const TorchPickle torch(pickle, /*opaque=*/true);
  TorchScriptClasses classes(folder);
  for (const std::string& name : torch.opaque()) check_class(name, classes);
  if (folder.find("constants.pkl")) check_constants(folder);

  StoredFile file;
  ArchiveStorages storages(folder, "data/", file);
  const PlaceStorage place = [&](Index id, ElementType type) {
    return storages.place(torch.storage(id), type);
  };
  ModuleWalk walk(torch, classes, place, file);
  if (!walk.is_module(pickle.root)) {
    refuse("archive", "a module", std::string(torch.node(pickle.root).what));
  }
  // Freezing removes the attribute that every other module has, and with it the names of weights.
  const auto items = walk.attributes(pickle.root);
  bool frozen = true;
  for (std::size_t i = 0; i < items.size(); i += 2) frozen &= pickle[items[i]].text != "training";
  walk.run(pickle.root);
  if (frozen && file.tensors.empty()) {
    refuse("archive", "a module with its weights",
           "a frozen TorchScript archive (torch.jit.freeze turned its weights into constants "
           "without names; save the module without freezing it)");
  }
  return file;
}

}  // namespace attn::formats
