#include "weights/save_torchscript.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>

#include <map>
#include <string_view>
#include <utility>

#include "weights/formats/format_error.h"

namespace attn {
namespace {

/// Deeper names would make LibTorch's writer recurse as deep.
constexpr std::size_t kMostParts = 64;

bool is_identifier_part(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// "encoder.0.weight" → {"encoder", "0", "weight"}
std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    const bool good = c == '.' ? !parts.back().empty() : is_identifier_part(c);
    TORCH_CHECK(good,
                "[save_weights] tensors: expected names of letters, digits, '_' and dots for "
                "TorchScript, got ",
                formats::in_quotes(name));
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  TORCH_CHECK(!parts.back().empty() && parts.size() <= kMostParts,
              "[save_weights] tensors: expected names with 1 to ", kMostParts,
              " parts between dots for TorchScript, got ", formats::in_quotes(name));
  return parts;
}

/// A module being built, with its submodules by name, in the order met.
struct Node {
  explicit Node(std::size_t number)
      : module(c10::QualifiedName("__torch__.Weights" + std::to_string(number))) {
    module.register_attribute("training", c10::BoolType::get(), false);
  }
  torch::jit::Module module;
  std::map<std::string, std::size_t> children;
};

class Tree {
 public:
  Tree() { nodes_.emplace_back(0); }

  void add(const std::string& name, const at::Tensor& tensor, bool is_buffer) {
    const std::vector<std::string> parts = parts_of(name);
    std::size_t node = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) node = child(node, parts[i], name);
    torch::jit::Module& module = nodes_[node].module;
    check_free(module.hasattr(parts.back()), name);
    // No lazy conjugation or negation, which no reader of weights takes for numbers.
    const at::Tensor value = tensor.detach().resolve_conj().resolve_neg().cpu();
    if (is_buffer) {
      module.register_buffer(parts.back(), value);
    } else {
      module.register_parameter(parts.back(), value, /*is_buffer=*/false);
    }
  }

  const torch::jit::Module& root() const { return nodes_.front().module; }

 private:
  static void check_free(bool taken, const std::string& name) {
    TORCH_CHECK(!taken,
                "[save_weights] tensors: expected names that are free in their module, got ",
                formats::in_quotes(name), ", which is a submodule or an attribute as well");
  }

  std::size_t child(std::size_t parent, const std::string& part, const std::string& name) {
    const auto [found, fresh] = nodes_[parent].children.try_emplace(part, nodes_.size());
    const std::size_t index = found->second;
    if (fresh) {
      check_free(nodes_[parent].module.hasattr(part), name);
      nodes_.emplace_back(index);
      nodes_[parent].module.register_module(part, nodes_[index].module);
    }
    return index;
  }

  std::vector<Node> nodes_;
};

}  // namespace

void write_torchscript(const NamedTensors& tensors, const std::set<std::string>& buffers,
                       const formats::Sink& sink) {
  Tree tree;
  for (const auto& [name, tensor] : tensors) {
    const bool is_number = tensor.is_floating_point() || tensor.is_complex();
    tree.add(name, tensor, !is_number || buffers.contains(name));
  }
  torch::jit::ExportModule(tree.root(), [&](const void* bytes, std::size_t size) {
    sink({static_cast<const char*>(bytes), size});
    return size;
  });
}

}  // namespace attn
