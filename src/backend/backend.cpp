#include <attn/backend.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdlib>
#include <ostream>
#include <utility>

namespace attn {
namespace {

constexpr std::array<std::pair<Backend, std::string_view>, 4> kNames = {{
    {Backend::kAuto, "auto"},
    {Backend::kReference, "reference"},
    {Backend::kFused, "fused"},
    {Backend::kLibTorch, "libtorch"},
}};

std::optional<Backend> find_backend(std::string_view name) {
  for (const auto& [backend, known] : kNames) {
    if (known == name) return backend;
  }
  return std::nullopt;
}

thread_local Backend guarded_backend = Backend::kAuto;

}  // namespace

std::string_view to_string(Backend backend) {
  for (const auto& [known, name] : kNames) {
    if (known == backend) return name;
  }
  TORCH_CHECK(false, "[to_string] backend: expected a member of attn::Backend, got ",
              static_cast<int>(backend));
}

Backend parse_backend(std::string_view name) {
  const std::optional<Backend> backend = find_backend(name);
  TORCH_CHECK(backend, "[parse_backend] name: expected auto, reference, fused or libtorch, got \"",
              name, "\"");
  return *backend;
}

std::ostream& operator<<(std::ostream& stream, Backend backend) {
  return stream << to_string(backend);
}

BackendGuard::BackendGuard(Backend backend) : previous_(std::exchange(guarded_backend, backend)) {}

BackendGuard::~BackendGuard() { guarded_backend = previous_; }

Backend default_backend() {
  if (guarded_backend != Backend::kAuto) return guarded_backend;
  const char* name = std::getenv("ATTN_BACKEND");
  if (name == nullptr || *name == '\0') return Backend::kAuto;
  const std::optional<Backend> backend = find_backend(name);
  TORCH_CHECK(backend,
              "[environment] ATTN_BACKEND: expected auto, reference, fused or libtorch, got \"",
              name, "\"");
  return *backend;
}

BackendError::BackendError(Backend backend, std::string reason)
    : c10::Error(c10::str("[attention] backend: ", backend, " cannot take this call: ", reason)),
      backend_(backend),
      reason_(std::move(reason)) {}

}  // namespace attn
