#include "weights/torchscript.h"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <exception>
#include <string>

#include "weights/input_file.h"

namespace attn {
namespace {

void check_is_torchscript(const std::string& path) {
  std::string other;
  try {
    caffe2::serialize::PyTorchStreamReader archive(path);
    if (archive.hasRecord("constants.pkl")) return;
    other = archive.hasRecord("data.pkl") ? "a torch.save file (a state_dict?), not read by this "
                                            "version; export TorchScript or safetensors"
                                          : "a zip archive without a TorchScript module";
  } catch (const std::exception&) {
    other = "a zip archive that is truncated or that PyTorch did not write";
  }
  refuse_file(path, other);
}

torch::jit::Module load_module(const std::string& path) {
  try {
    return torch::jit::load(path, c10::Device(c10::kCPU), /*load_debug_files=*/false);
  } catch (const std::exception& error) {
    refuse_file(path, "a TorchScript archive that LibTorch cannot load (" + reason(error) + ")");
  }
}

}  // namespace

NamedTensors read_torchscript(const std::string& path) {
  check_is_torchscript(path);
  const torch::jit::Module module = load_module(path);
  NamedTensors tensors;
  // Module by module, its parameters before its buffers: the order of Python's state_dict().
  for (const auto& [prefix, submodule] : module.named_modules()) {
    const std::string dotted = prefix.empty() ? "" : prefix + ".";
    for (const auto& [name, tensor] : submodule.named_parameters(/*recurse=*/false)) {
      tensors.emplace_back(dotted + name, tensor.detach());
    }
    for (const auto& [name, tensor] : submodule.named_buffers(/*recurse=*/false)) {
      tensors.emplace_back(dotted + name, tensor.detach());
    }
  }
  // Freezing removes the attribute that every other module has.
  if (tensors.empty() && !module.hasattr("training")) {
    refuse_file(path,
                "a frozen TorchScript archive (torch.jit.freeze turned its weights into constants "
                "without names; save the module without freezing it)");
  }
  return tensors;
}

}  // namespace attn
