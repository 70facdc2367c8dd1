#include "weights/prefix.h"

#include <algorithm>
#include <functional>

namespace attn {
namespace {

/// Characters that two texts share at their ends.
std::ptrdiff_t likeness(const std::string& a, const std::string& b) {
  const auto front = std::ranges::mismatch(a, b).in1 - a.begin();
  const auto back = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin();
  return front + back;
}

bool fits(const std::vector<std::string>& sorted, const NamedTensors& targets,
          const std::string& prefix) {
  const auto begin = std::ranges::lower_bound(sorted, prefix);
  const auto end = std::find_if_not(begin, sorted.end(),
                                    [&](const auto& name) { return name.starts_with(prefix); });
  return end - begin == std::ssize(targets) &&
         std::ranges::all_of(targets, [&](const auto& target) {
           return std::binary_search(begin, end, prefix + target.first);
         });
}

}  // namespace

std::vector<std::string> fitting_prefixes(const NamedTensors& source, const NamedTensors& targets,
                                          const std::string& wanted) {
  std::vector<std::string> prefixes;
  if (targets.empty()) return prefixes;
  std::vector<std::string> sorted;
  for (const auto& [name, tensor] : source) sorted.push_back(name);
  std::ranges::sort(sorted);
  const std::string& first = targets.front().first;
  for (const auto& [name, tensor] : source) {
    if (!name.ends_with(first)) continue;
    const std::string prefix = name.substr(0, name.size() - first.size());
    if ((prefix.empty() || prefix.ends_with('.')) && fits(sorted, targets, prefix))
      prefixes.push_back(prefix);
  }
  std::ranges::stable_sort(prefixes, std::greater{},
                           [&](const auto& prefix) { return likeness(prefix, wanted); });
  return prefixes;
}

}  // namespace attn
