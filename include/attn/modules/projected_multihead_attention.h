#pragma once

#include <attn/export.h>
#include <attn/functional.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace attn {

/// Options of `AttentionScore`.
struct ATTN_API AttentionScoreOptions {
  /// Clip the logits to [−C, C].
  TORCH_ARG(bool, use_tanh) = false;
  /// Range of the clipping.
  TORCH_ARG(double, C) = 10.0;
};

/// The masked logits of attention, clipped on demand (Bello et al. 2016, arXiv:1611.09940; Kool et
/// al. 2019, arXiv:1803.08475), without softmax and without parameters:
///
///     u = query · keyᵀ / √D,   logits = mask(use_tanh ? C·tanh(u) : u)
class ATTN_API AttentionScoreImpl : public torch::nn::Cloneable<AttentionScoreImpl> {
 public:
  explicit AttentionScoreImpl(const AttentionScoreOptions& options = {});

  void reset() override {}
  void pretty_print(std::ostream& stream) const override;

  /// @param query [..., L, D]
  /// @param key [..., S, D]
  /// @param mask bool, true *blocks* (the logit becomes −∞). It broadcasts to the logits' shape
  ///     from the right; where it does not and L = 1, it is read as [..., S]. Undefined: none.
  /// @return the logits [..., L, S]
  ///
  /// Throws `c10::Error` for another rank, size, dtype or device, naming the argument.
  torch::Tensor forward(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& mask = {});

  AttentionScoreOptions options;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({2, torch::nn::AnyValue(torch::Tensor())})
};

/// A shared handle on `AttentionScoreImpl`.
TORCH_MODULE(AttentionScore);

/// Options of `PreprojectedMultiheadAttention` and `ProjectedMultiheadAttention`.
struct ATTN_API ProjectedMultiheadAttentionOptions {
  ProjectedMultiheadAttentionOptions(
      int64_t embedding_dim);  // NOLINT(google-explicit-constructor): as torch::nn does

  /// Features of all inputs and of the output; a multiple of `n_heads`.
  TORCH_ARG(int64_t, embedding_dim);
  TORCH_ARG(int64_t, n_heads) = 8;
  /// A row with no open key: NaN as in Python, or zeros with finite gradients.
  TORCH_ARG(FullyMasked, fully_masked) = FullyMasked::kNaN;
};

using PreprojectedMultiheadAttentionOptions = ProjectedMultiheadAttentionOptions;

/// Multi-head attention on a query, keys and values that are projected already (Kool et al. 2019,
/// arXiv:1803.08475):
///
///     head_h = softmax(mask(q_h k_hᵀ / √(embedding_dim / n_heads))) v_h
///     out = W_O [head_1 … head_H]
///
/// No map has a bias. As in Python, `attentionScore->options.use_tanh(true)` clips the logits.
class ATTN_API PreprojectedMultiheadAttentionImpl
    : public torch::nn::Cloneable<PreprojectedMultiheadAttentionImpl> {
 public:
  /// Throws `c10::Error` for sizes below 1 and heads that do not divide `embedding_dim`.
  explicit PreprojectedMultiheadAttentionImpl(const PreprojectedMultiheadAttentionOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  /// A deep copy with the same training flags and `requires_grad`; draws no random numbers.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

  /// @param query [B, L, embedding_dim]
  /// @param key [B, S, embedding_dim]
  /// @param value [B, S, embedding_dim]
  /// @param mask bool, true *blocks*: 0-D, [S], [B|1, L|1, S|1] or heads first [H|1, B|1, L|1,
  ///     S|1]. Undefined: none.
  /// @return [B, L, embedding_dim]
  ///
  /// A batch of 1 among query, key and value broadcasts. Throws `c10::Error` for another rank,
  /// size, dtype or device, naming the argument.
  torch::Tensor forward(const torch::Tensor& query, const torch::Tensor& key,
                        const torch::Tensor& value, const torch::Tensor& mask = {});

  PreprojectedMultiheadAttentionOptions options;
  AttentionScore attentionScore{nullptr};
  torch::nn::Linear project_out{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({3, torch::nn::AnyValue(torch::Tensor())})
};

/// A shared handle on `PreprojectedMultiheadAttentionImpl`.
TORCH_MODULE(PreprojectedMultiheadAttention);

/// `PreprojectedMultiheadAttention` behind projections of its own (Kool et al. 2019,
/// arXiv:1803.08475):
///
///     out = MHA(W_Q q, W_K h, W_V h, mask),   h = q when it is not given
///
///     auto options = attn::ProjectedMultiheadAttentionOptions(128).n_heads(8);
///     attn::ProjectedMultiheadAttention mha(options);
///     auto out = mha(q, h, padding);   // padding [B, S], true blocks
class ATTN_API ProjectedMultiheadAttentionImpl
    : public torch::nn::Cloneable<ProjectedMultiheadAttentionImpl> {
 public:
  /// Throws `c10::Error` for sizes below 1 and heads that do not divide `embedding_dim`.
  explicit ProjectedMultiheadAttentionImpl(const ProjectedMultiheadAttentionOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  /// A deep copy with the same training flags and `requires_grad`; draws no random numbers.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

  /// @param q [B, L, embedding_dim]
  /// @param h [B, S, embedding_dim]; undefined: self-attention of q
  /// @param mask bool, true *blocks*: [B|1, S] (keys per batch), 0-D, [S], [B|1, L|1, S|1] or heads
  ///     first [H|1, B|1, L|1, S|1]; a query-by-key mask is passed as [1, L, S]. Undefined: none.
  /// @return [B, L, embedding_dim]
  ///
  /// A batch of 1 of q or h broadcasts. Throws `c10::Error` for another rank, size, dtype or
  /// device, naming the argument.
  torch::Tensor forward(const torch::Tensor& q, const torch::Tensor& h = {},
                        const torch::Tensor& mask = {});

  ProjectedMultiheadAttentionOptions options;
  torch::nn::Linear queryEncoder{nullptr};
  torch::nn::Linear keyEncoder{nullptr};
  torch::nn::Linear valueEncoder{nullptr};
  PreprojectedMultiheadAttention MHA{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(torch::Tensor())},
                           {2, torch::nn::AnyValue(torch::Tensor())})
};

/// A shared handle on `ProjectedMultiheadAttentionImpl`.
TORCH_MODULE(ProjectedMultiheadAttention);

}  // namespace attn
