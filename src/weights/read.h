#pragma once

#include <attn/weights.h>

#include <string>

#include "weights/opened_file.h"

namespace attn {

/// Makes the tensors whose names begin with `prefix`, without it, on the CPU.
/// @throws WeightsError for a part that is damaged
WeightFile make_weight_file(OpenedFile opened, const std::string& prefix);

}  // namespace attn
