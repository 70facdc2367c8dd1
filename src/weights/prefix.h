#pragma once

#include <attn/weights.h>

#include <string>
#include <vector>

namespace attn {

/// Prefixes under which the file `source` has exactly the names of the module `targets`, those most
/// like `wanted` first.
std::vector<std::string> fitting_prefixes(const NamedTensors& source, const NamedTensors& targets,
                                          const std::string& wanted);

}  // namespace attn
