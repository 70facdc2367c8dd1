#include "weights/read.h"

#include <c10/core/InferenceMode.h>

#include <iterator>
#include <string>
#include <utility>

#include "weights/formats/format_error.h"
#include "weights/opened_file.h"
#include "weights/tensors.h"

namespace attn {
namespace {

std::string type_text(const formats::StoredTensor& tensor) {
  std::string text(formats::name_of(tensor.type));
  text += " [";
  for (const std::uint64_t size : tensor.sizes)
    text += (text.ends_with('[') ? "" : ", ") + std::to_string(size);
  return text + ']';
}

/// Moves the tensors that are not under the prefix to `skipped`, and the prefix off the others.
void select(formats::StoredFile& file, const std::string& prefix,
            std::vector<SkippedEntry>& skipped) {
  std::vector<formats::StoredTensor> kept;
  for (formats::StoredTensor& tensor : file.tensors) {
    if (tensor.name.starts_with(prefix)) {
      tensor.name.erase(0, prefix.size());
      kept.push_back(std::move(tensor));
    } else {
      skipped.push_back({tensor.name, type_text(tensor), /*is_tensor=*/true});
    }
  }
  file.tensors = std::move(kept);
  for (auto& [name, what] : file.skipped) skipped.push_back({std::move(name), std::move(what)});
}

template <class List>
void append(List& to, List&& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

WeightFile make_weight_file(OpenedFile opened, const std::string& prefix) {
  // Tensors made inside InferenceMode could never take part in training.
  const c10::InferenceMode inference(false);
  WeightFile file;
  file.format = std::move(opened.format);
  for (OpenedPart& part : opened.parts) {
    select(part.stored, prefix, file.skipped);
    try {
      append(file.tensors, make_tensors(part.stored, part.mapping));
    } catch (const formats::FormatError& error) {
      refuse_file(part.path, error.what());
    }
    append(file.opaque, std::move(part.stored.opaque));
    append(file.metadata, std::move(part.stored.metadata));
  }
  return file;
}

WeightFile read_weight_file(const std::string& path, const LoadOptions& options) {
  WeightFile file = make_weight_file(open_weight_file(path, options.opaque()), options.prefix());
  const c10::InferenceMode inference(false);
  for (auto& [name, tensor] : file.tensors) tensor = tensor.to(options.device());
  return file;
}

NamedTensors read_weights(const std::string& path, const LoadOptions& options) {
  return read_weight_file(path, options).tensors;
}

}  // namespace attn
