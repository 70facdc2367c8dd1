#pragma once

#include <attn/backend.h>

#include <optional>
#include <string>
#include <vector>

namespace attn::cli {

/// A kind of call, and why each backend of this build does not take it; in the order of
/// `available_backends`.
struct BackendRow {
  std::string call;
  std::vector<std::optional<std::string>> refusals;
};

/// Which backend takes what, as `why_not` says of small calls. It does not say that a call is fast.
std::vector<BackendRow> backend_table();

}  // namespace attn::cli
