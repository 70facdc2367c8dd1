#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "weights/formats/torch_archive.h"

namespace attn::formats {

/// What a class of an archive declares about its attributes.
struct TorchScriptClass {
  bool is_module = false;
  std::set<std::string, std::less<>> parameters;
  /// None in archives from before PyTorch 1.6: there, every other tensor is a buffer.
  std::optional<std::set<std::string, std::less<>>> buffers;
};

/// The class declarations in a TorchScript archive's code, of which nothing else is read.
class TorchScriptClasses {
 public:
  using Names = std::set<std::string, std::less<>>;

  explicit TorchScriptClasses(const TorchArchive& archive) : archive_(archive) {}

  /// The class of a whole name, "__torch__.torch.nn.modules.linear.Linear"; nullptr where the archive
  /// does not declare it.
  /// @throws FormatError where a declaration is not as PyTorch writes it
  const TorchScriptClass* find(std::string_view name);

 private:
  void read_file(std::string_view module);
  /// The strings of a line of the code of `module`, counted.
  Names names(std::string_view line, std::string_view module);

  const TorchArchive& archive_;
  std::set<std::string, std::less<>> files_;
  std::map<std::string, TorchScriptClass, std::less<>> classes_;
  /// Bytes of text, and names of attributes, that were read.
  std::uint64_t read_ = 0;
  std::size_t names_ = 0;
};

}  // namespace attn::formats
