#pragma once

#include <attn/export.h>
#include <c10/util/Exception.h>

#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// An implementation of attention.
enum class Backend {
  /// The fastest one that takes the call.
  kAuto,
  /// The documents' own sequence of ATen operations: equal to eager Python bit for bit, takes every
  /// call.
  kReference,
  /// The fused kernel, for the CPU: near its peak, without the logits in memory, forward and backward.
  /// Second derivatives are those of `kReference`.
  kFused,
  /// LibTorch's `scaled_dot_product_attention`.
  kLibTorch,
};

/// "auto", "reference", "fused" or "libtorch".
ATTN_API std::string_view to_string(Backend backend);
/// The inverse of `to_string`; throws `c10::Error` for another text.
ATTN_API Backend parse_backend(std::string_view name);
ATTN_API std::ostream& operator<<(std::ostream& stream, Backend backend);

/// The SIMD target that `kFused` runs on: that of the environment variable ATTN_SIMD, else the first of
/// `simd_targets`. Throws `c10::Error` when ATTN_SIMD names none of them.
ATTN_API std::string simd_target();
/// The SIMD targets of `kFused` that this CPU has, the fastest first; of "avx512_bf16", "avx512",
/// "avx2", "sse4", "neon" and "scalar".
ATTN_API std::vector<std::string> simd_targets();

/// Makes a backend the default of this thread for as long as the guard lives.
///
/// Precedence: `AttentionOptions::backend`, then the innermost guard, then the environment variable
/// ATTN_BACKEND.
class ATTN_API BackendGuard {
 public:
  explicit BackendGuard(Backend backend);
  ~BackendGuard();
  BackendGuard(const BackendGuard&) = delete;
  BackendGuard& operator=(const BackendGuard&) = delete;

 private:
  Backend previous_;
};

/// What `kAuto` stands for on this thread now: the innermost guard's backend, else that of
/// ATTN_BACKEND, else `kAuto`. Throws `c10::Error` when ATTN_BACKEND names no backend.
ATTN_API Backend default_backend();

/// A named backend that cannot take a call: "[attention] backend: … cannot take this call: reason".
class ATTN_API BackendError : public c10::Error {
 public:
  BackendError(Backend backend, std::string reason);
  Backend backend() const noexcept { return backend_; }
  /// What `why_not` says.
  const std::string& reason() const noexcept { return reason_; }

 private:
  Backend backend_;
  std::string reason_;
};

}  // namespace attn
