#pragma once

#include <attn/weights.h>

#include <string>

namespace attn {

/// Parameters and buffers of a zip archive that is a TorchScript module, on the CPU.
/// @throws WeightsError
NamedTensors read_torchscript(const std::string& path);

}  // namespace attn
