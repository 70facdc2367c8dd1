#include "functional/select.h"

#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <array>
#include <utility>

#include "backend/fused/attention.h"
#include "backend/libtorch.h"
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
    Entry{Backend::kLibTorch, libtorch_refusal, libtorch_attention},
    Entry{Backend::kReference,
          [](const AttentionCall&) -> std::optional<std::string> { return std::nullopt; },
          reference_attention},
};

/// LibTorch multiplies bfloat16 on a CPU's AMX tiles, for which it packs the operands; the fused
/// kernel does not use them. Not measured: there was no such CPU to measure on.
bool libtorch_has_amx(const AttentionCall& call) {
  static const bool amx = at::native::cpublas::could_pack(at::kBFloat16);
  return amx && call.query.is_cpu() && call.query.scalar_type() == at::kBFloat16 &&
         !libtorch_refusal(call);
}

/// The fastest entry that takes the call.
const Entry& best_entry(const AttentionCall& call) {
  const bool skip_fused = libtorch_has_amx(call);
  return *std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry& e) {
    return !(skip_fused && e.backend == Backend::kFused) && !e.why_not(call);
  });
}

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
  if (backend == Backend::kAuto) return best_entry(call).run(call);
  if (std::optional<std::string> reason = refusal(backend, call)) {
    throw BackendError(backend, *std::move(reason));
  }
  return find_entry(backend)->run(call);
}

}  // namespace attn
