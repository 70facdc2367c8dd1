#pragma once

#include <ATen/record_function.h>
#include <attn/functional.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace attn::testing {

/// Removes a callback, also when what it listens to throws.
struct Uninstaller {
  at::CallbackHandle handle;
  ~Uninstaller() { at::removeCallback(handle); }
};

/// The operators of LibTorch that this thread calls during `call`, without those inside the linear
/// maps.
template <class Call>
std::vector<std::string> operators_during(Call call) {
  static thread_local std::vector<std::string>* names = nullptr;
  static thread_local int maps = 0;  // that are running
  static const auto is_map = [](const at::RecordFunction& function) {
    const std::string name = function.name();
    return name == "aten::linear" || name == "mkldnn::_linear_pointwise";
  };
  std::vector<std::string> found;
  names = &found;
  maps = 0;
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
            if (maps == 0) names->emplace_back(function.name());
            maps += is_map(function) ? 1 : 0;
            return nullptr;
          },
          [](const at::RecordFunction& function, at::ObserverContext*) {
            maps -= is_map(function) ? 1 : 0;
          })
          .scopes({at::RecordScope::FUNCTION}));
  const Uninstaller uninstaller{handle};
  call();
  return found;
}

/// Those that copy a tensor; `contiguous` may, and has no other purpose.
inline std::vector<std::string> copies_during(const std::function<void()>& call) {
  static const std::set<std::string> copying = {"aten::clone",      "aten::copy_",
                                                "aten::contiguous", "aten::_to_copy",
                                                "aten::cat",        "aten::repeat_interleave",
                                                "aten::masked_fill"};
  std::vector<std::string> copies;
  for (const std::string& name : operators_during(call)) {
    if (copying.contains(name)) copies.push_back(name);
  }
  return copies;
}

/// Whether this machine projects by oneDNN at all.
inline bool has_onednn() { return projection_kernel().starts_with("oneDNN"); }

/// How many products of the linear maps and of their gradients oneDNN computes.
inline int64_t onednn_products_during(const std::function<void()>& call) {
  const std::vector<std::string> names = operators_during(call);
  return std::count(names.begin(), names.end(), "mkldnn::_linear_pointwise");
}

}  // namespace attn::testing
