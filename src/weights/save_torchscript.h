#pragma once

#include <attn/weights.h>

#include <set>
#include <string>

#include "weights/formats/stored_file.h"

namespace attn {

/// Writes a TorchScript module without methods. Dots in names make submodules; tensors are
/// parameters, except for `buffers` and for those that are neither floating nor complex.
/// @throws c10::Error for a name that TorchScript cannot have
void write_torchscript(const NamedTensors& tensors, const std::set<std::string>& buffers,
                       const formats::Sink& sink);

}  // namespace attn
