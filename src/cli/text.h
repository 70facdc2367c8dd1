#pragma once

#include <cstdint>
#include <string>

#include "weights/formats/printable.h"

namespace attn::cli {

using formats::printable;

/// "512 B", "2.9 MB": of 1000 each.
std::string bytes_text(std::uint64_t bytes);

}  // namespace attn::cli
