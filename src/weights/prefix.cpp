#include "weights/prefix.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

namespace attn {
namespace {

/// Characters that two texts share at their ends.
std::ptrdiff_t likeness(const std::string& a, const std::string& b) {
  const auto front = std::ranges::mismatch(a, b).in1 - a.begin();
  const auto back = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin();
  return front + back;
}

using Sorted = std::vector<const NamedShapes::value_type*>;

std::string_view name_of(const NamedShapes::value_type* tensor) { return tensor->first; }

bool fits(const Sorted& sorted, const NamedShapes& targets, const std::string& prefix) {
  const auto begin = std::ranges::lower_bound(sorted, prefix, {}, name_of);
  // One more than there may be tells as much as all: prefixes may stand before each other.
  const auto few = begin + std::min(sorted.end() - begin, std::ssize(targets) + 1);
  const auto end = std::find_if_not(
      begin, few, [&](const auto* tensor) { return tensor->first.starts_with(prefix); });
  return end - begin == std::ssize(targets) &&
         std::ranges::all_of(targets, [&](const auto& target) {
           const std::string name = prefix + target.first;
           const auto found = std::ranges::lower_bound(begin, end, name, {}, name_of);
           return found != end && (*found)->first == name && (*found)->second == target.second;
         });
}

/// The wrapper's part that `name` has at `at`, or nothing.
std::string_view wrapper_at(std::string_view name, std::size_t at) {
  for (const std::string_view part : {"module.", "_orig_mod."})
    if (name.substr(at).starts_with(part)) return part;
  return {};
}

/// The parts of wrappers behind `prefix` that every name under it has.
std::vector<std::string_view> common_wrappers(const NamedShapes& source,
                                              const std::string& prefix) {
  std::vector<std::string_view> common;
  bool first = true;
  for (const auto& [name, sizes] : source) {
    if (!name.starts_with(prefix)) continue;
    std::vector<std::string_view> parts;
    std::size_t at = prefix.size();
    while (first || parts.size() < common.size()) {
      const std::string_view part = wrapper_at(name, at);
      if (part.empty() || (!first && part != common[parts.size()])) break;
      parts.push_back(part);
      at += part.size();
    }
    common = std::move(parts);
    first = false;
  }
  return common;
}

/// `prefix` with the fewest of the common wrappers behind it for which `found` holds; with all of
/// them where it holds for none.
template <class Predicate>
std::string wrapped(const NamedShapes& source, std::string prefix, const Predicate& found) {
  for (const std::string_view part : common_wrappers(source, prefix)) {
    if (found(prefix)) break;
    prefix += part;
  }
  return prefix;
}

}  // namespace

std::string with_wrappers(const NamedShapes& source, const NamedShapes& targets,
                          const std::string& prefix) {
  std::set<std::string_view> names;
  for (const auto& [name, sizes] : source) names.insert(name);
  const auto has_prefix = [&](const std::string& before) {
    return std::ranges::any_of(
        source, [&](const auto& tensor) { return tensor.first.starts_with(before + prefix); });
  };
  const auto has_target = [&](const std::string& before) {
    return std::ranges::any_of(
        targets, [&](const auto& target) { return names.contains(before + target.first); });
  };
  if (!prefix.empty() && !has_prefix("")) return wrapped(source, "", has_prefix) + prefix;
  const bool one_part = prefix.empty() || prefix.find('.') == prefix.size() - 1;
  return one_part ? wrapped(source, prefix, has_target) : prefix;
}

std::vector<std::string> fitting_prefixes(const NamedShapes& source, const NamedShapes& targets,
                                          const std::string& wanted) {
  std::vector<std::string> prefixes;
  if (targets.empty()) return prefixes;
  Sorted sorted;
  for (const auto& tensor : source) sorted.push_back(&tensor);
  std::ranges::sort(sorted, {}, name_of);
  const std::string& first = targets.front().first;
  for (const auto& [name, sizes] : source) {
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
