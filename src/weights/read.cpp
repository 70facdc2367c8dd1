#include <attn/weights.h>
#include <c10/core/InferenceMode.h>

#include <string>
#include <string_view>

#include "weights/formats/format_error.h"
#include "weights/formats/safetensors.h"
#include "weights/input_file.h"
#include "weights/safetensors.h"
#include "weights/torchscript.h"

namespace attn {
namespace {

using namespace std::string_view_literals;

bool is_zip(std::string_view start) {
  return start.starts_with("PK\3\4"sv) || start.starts_with("PK\5\6"sv);
}

/// What a file that cannot be read looks like.
std::string looks_like(std::string_view start) {
  if (start.empty()) return "an empty file";
  if (start.starts_with("version https://git-lfs"sv))
    return "a Git LFS pointer (fetch the file itself with `git lfs pull`)";
  if (start.starts_with('\x80'))
    return "a pickle (a legacy torch.save file?), not read by this version; export TorchScript "
           "or safetensors";
  const std::size_t text = start.find_first_not_of(" \t\r\n"sv);
  if (text != start.npos && start[text] == '<') return "an HTML or XML page (a failed download?)";
  return "a file of another kind, which begins with " + formats::in_quotes(start.substr(0, 16));
}

}  // namespace

NamedTensors read_weights(const std::string& path) {
  // Tensors made inside InferenceMode could never take part in training.
  const c10::InferenceMode inference(false);
  const std::string start = InputFile(path).start(256);
  if (is_zip(start)) return read_torchscript(path);
  if (formats::begins_like_safetensors(start)) return read_safetensors(path).tensors;
  refuse_file(path, looks_like(start));
}

}  // namespace attn
