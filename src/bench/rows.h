#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace attn::bench {

enum class MaskKind {
  kNone,
  kCausal,
  /// Bool [L, S], half of it open.
  kBool,
  /// Bool [1, H, L, S], half of it open.
  kBoolPerHead,
  /// Bool [1, 1, 1, S], half of the keys open.
  kKeyPadding,
  /// Additive [L, S].
  kBias,
  /// Additive [1, H, L, S].
  kBiasPerHead,
};

/// What a row runs: attention alone, or a whole module on [B, L, H·D].
enum class Subject { kAttention, kProjectedLayer, kCausalLayer };

/// Which part of it a call is. Gradients are those of every floating input, an additive mask and a
/// layer's parameters included.
enum class Pass {
  /// The forward, where nothing asks for gradients.
  kForward,
  /// The gradients, again and again of one graph, built beforehand.
  kBackward,
  /// Both, as training does at every step.
  kStep,
};

/// One line of the benchmark: a problem that attn and its opponents solve on the same tensors.
struct Row {
  std::string group = {};
  std::string name = {};
  Subject subject = Subject::kAttention;
  at::ScalarType dtype = at::kFloat;
  int64_t B = 1;
  int64_t H = 8;
  int64_t Hk = 8;
  int64_t L = 1;
  int64_t S = 1;
  int64_t D = 64;
  int64_t Dv = 64;
  MaskKind mask = MaskKind::kNone;
  std::optional<double> logit_clip = std::nullopt;
  double dropout_p = 0.0;
  Pass pass = Pass::kForward;
};

/// Every row, declared once; the rows of a group stand together.
const std::vector<Row>& rows();

/// "group/name", what users select rows by.
std::string full_name(const Row& row);

/// "GB/s" for decoding, which reads K and V once and computes little, else "GFLOP/s".
std::string unit(const Row& row);

/// What a call amounts to in the row's unit times seconds: K and V bytes / 1e9, or flops / 1e9 of
/// the whole L × S square, whatever the mask leaves of it. The forward is two products with the
/// square, the backward five: the scores anew, and the gradients of weights, query, key and value.
double work(const Row& row);

/// The share of `work` that the causal mask leaves to do; 1 without one.
double open_share(const Row& row);

}  // namespace attn::bench
