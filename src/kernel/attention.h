#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace attn::kernel {

enum class Element : uint8_t { kFloat32, kFloat64, kBFloat16, kFloat16 };

/// Bytes of one element.
constexpr int64_t size_of(Element element) {
  return element == Element::kFloat64 ? 8 : element == Element::kFloat32 ? 4 : 2;
}

/// A four-dimensional tensor in memory, [B, H, rows, columns]; strides count elements, and 0
/// broadcasts.
struct View {
  const void* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t column = 0;
};

/// The start of a batch and head of a view.
template <class T>
const T* head_of(const View& view, int64_t b, int64_t h) {
  return static_cast<const T*>(view.data) + b * view.batch + h * view.head;
}

/// What becomes of a scaled logit u before the mask.
enum class Squash : uint8_t {
  kNone,
  /// C·tanh(u)
  kClip,
  /// C·tanh(u / C)
  kSoftcap,
};

/// One attention over all batches and heads:
///
///     output = dropout(softmax(mask(squash(scale · query · keyᵀ) + bias))) · value
///
/// Sums and softmax are in float32, in float64 for float64 elements; results are rounded once.
struct Problem {
  int64_t batches = 0;
  int64_t heads = 0;
  int64_t key_heads = 0;  ///< Divides `heads`: query head h reads key head h / (heads / key_heads).
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  Element element = Element::kFloat32;

  View query;  ///< [B, H, L, D]
  View key;    ///< [B, Hk, S, D]
  View value;  ///< [B, Hk, S, Dv]

  double scale = 1.0;
  Squash squash = Squash::kNone;
  double squash_limit = 0.0;  ///< C

  /// Key j is later than query i may see when j > i + causal_offset.
  bool causal = false;
  int64_t causal_offset = 0;
  View attend;  ///< Bytes [B, H, L, S]: 0 blocks. No data, no mask.
  View block;   ///< Bytes [B, H, L, S]: anything but 0 blocks.
  View bias;    ///< Added to the logit, [B, H, L, S]; −∞ blocks.
  Element bias_element = Element::kFloat32;

  /// The final logit of a key that `causal`, `attend` or `block` blocks.
  double masked_score = -std::numeric_limits<double>::infinity();
  /// Rows whose logits are all −∞ become NaN instead of zero.
  bool nan_when_fully_masked = false;

  /// Of 65536 weights so many are dropped, by chance, and the others multiplied by
  /// 65536 / (65536 − dropped). Which, is decided by the seed and the weight's place (`dropout.h`).
  uint32_t dropped = 0;
  uint64_t dropout_seed = 0;

  void* output = nullptr;  ///< [B, H, L, Dv]; its columns are adjacent
  int64_t output_batch = 0;
  int64_t output_head = 0;
  int64_t output_row = 0;
  void* logsumexp = nullptr;  ///< [B, H, L], contiguous, in the type of the sums; may be null
  /// What rounding took from `logsumexp`, likewise; may be null. The sum of both is exact enough for the
  /// weights of a row whose logits are all -1e20.
  void* logsumexp_rest = nullptr;
  void* weights = nullptr;  ///< [B, H, L, S], contiguous, in `element`; may be null
};

/// Where a gradient of [B, heads, rows, columns] goes; columns are adjacent. No data: not asked for.
struct GradientView {
  void* data = nullptr;
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
};

/// Where the gradient of the bias goes: contiguous, in `bias_element`. A size of 1 where the problem's
/// is larger asks for the sum over that dimension.
struct BiasGradient {
  void* data = nullptr;
  int64_t batches = 1;
  int64_t heads = 1;
  int64_t rows = 1;
  int64_t columns = 1;
};

/// What the gradients of a problem are made of, beside the problem itself, and where they go. The
/// problem's own results (`output`, `logsumexp`, `weights`) are not used.
struct Gradients {
  View output;                           ///< [B, H, L, Dv], as the forward pass rounded it
  const void* logsumexp = nullptr;       ///< [B, H, L], contiguous, of the forward pass
  const void* logsumexp_rest = nullptr;  ///< likewise
  View output_gradient;                  ///< [B, H, L, Dv], in `element`
  /// [B, H, L], contiguous, in the type of the sums. No data: zero.
  const void* logsumexp_gradient = nullptr;

  GradientView query;  ///< [B, H, L, D]
  GradientView key;    ///< [B, Hk, S, D]
  GradientView value;  ///< [B, Hk, S, Dv]
  BiasGradient bias;
};

/// How a problem is cut into tasks. It depends on shapes and strides alone, so that the bits of the result
/// depend neither on the number of threads nor on batchmates.
struct Plan {
  /// Independent of each other, the longest first.
  int64_t tasks = 0;
  /// Tasks of a second round, each combining what tasks of the first have left in `partials`.
  int64_t merges = 0;
  int64_t workspace_bytes = 0;  ///< Scratch of one thread, aligned to `kAlignment`.
  int64_t partials_bytes = 0;   ///< Scratch of all threads together, aligned to `kAlignment`.
};

constexpr int64_t kAlignment = 64;

/// The kernel, compiled for one instruction set.
struct Kernel {
  /// As ATTN_SIMD spells it: "avx512_bf16", "avx512", "avx2", "sse4", "neon" or "scalar".
  std::string_view name;
  Plan (*plan)(const Problem&);
  void (*run)(const Problem&, int64_t task, void* workspace, void* partials);
  void (*merge)(const Problem&, int64_t merge, void* workspace, void* partials);

  Plan (*plan_gradients)(const Problem&, const Gradients&);
  void (*run_gradients)(const Problem&, const Gradients&, int64_t task, void* workspace,
                        void* partials);
  void (*merge_gradients)(const Problem&, const Gradients&, int64_t merge, void* workspace,
                          void* partials);
};

/// The kernels that this CPU runs, the fastest first.
const std::vector<Kernel>& supported_kernels();

}  // namespace attn::kernel
