#include "functional/select.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "backend/fused/forward.h"
#include "backend/reference.h"

namespace attn {
namespace {

struct Entry {
  Backend backend;
  std::optional<std::string> (*why_not)(const AttentionCall&);
  AttentionResult (*run)(const AttentionCall&);
};

/// In the order in which `kAuto` asks them. The reference comes last and takes everything.
constexpr std::array kEntries = {
    Entry{Backend::kFused, fused_refusal, fused_attention},
    Entry{Backend::kReference,
          [](const AttentionCall&) -> std::optional<std::string> { return std::nullopt; },
          reference_attention},
};

const Entry* find_entry(Backend backend) {
  const auto* entry = std::find_if(kEntries.begin(), kEntries.end(),
                                   [&](const Entry& e) { return e.backend == backend; });
  return entry == kEntries.end() ? nullptr : entry;
}

}  // namespace

std::optional<std::string> refusal(Backend backend, const AttentionCall& call) {
  if (backend == Backend::kAuto) return std::nullopt;
  const Entry* entry = find_entry(backend);
  if (entry == nullptr) return "this version of attn does not have it";
  return entry->why_not(call);
}

std::vector<Backend> available_backends() {
  std::vector<Backend> backends;
  for (const Entry& entry : kEntries) backends.push_back(entry.backend);
  return backends;
}

AttentionResult run(const AttentionCall& call, Backend requested) {
  const Backend backend = requested == Backend::kAuto ? default_backend() : requested;
  if (backend == Backend::kAuto) {
    const auto* entry = std::find_if(kEntries.begin(), kEntries.end(),
                                     [&](const Entry& e) { return !e.why_not(call); });
    return entry->run(call);
  }
  const std::optional<std::string> reason = refusal(backend, call);
  TORCH_CHECK(!reason, "[attention] backend: ", backend,
              " cannot take this call: ", reason.value_or(""));
  return find_entry(backend)->run(call);
}

}  // namespace attn
