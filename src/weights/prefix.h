#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attn {

/// Names of tensors with their sizes.
using NamedShapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

/// Prefixes under which the file `source` has exactly the names of the module `targets`, with their
/// shapes; those most like `wanted` first.
std::vector<std::string> fitting_prefixes(const NamedShapes& source, const NamedShapes& targets,
                                          const std::string& wanted);

/// The parts "module." and "_orig_mod.", in any order and number, that DataParallel and
/// torch.compile put before every name, and that are to be read with `prefix`: before it, or, where
/// it is empty or one part ("state_dict."), behind it. What every name under the prefix shares is
/// stripped, up to where names of the module are found. Gives the prefix with them.
std::string with_wrappers(const NamedShapes& source, const NamedShapes& targets,
                          const std::string& prefix);

}  // namespace attn
