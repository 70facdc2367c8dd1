#pragma once

#include <attn/export.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <tuple>

namespace attn {

/// Options of `XavierMultiheadAttention`.
struct ATTN_API XavierMultiheadAttentionOptions {
  XavierMultiheadAttentionOptions(int64_t in_dim, int64_t qk_dim, int64_t v_dim, int64_t out_dim,
                                  int64_t n_heads);

  /// Features of queries, keys and values.
  TORCH_ARG(int64_t, in_dim);
  /// Features of the projected queries and keys, all heads together; a multiple of `n_heads`.
  TORCH_ARG(int64_t, qk_dim);
  /// Features of the projected values, all heads together; a multiple of `n_heads`.
  TORCH_ARG(int64_t, v_dim);
  /// Features of the output.
  TORCH_ARG(int64_t, out_dim);
  TORCH_ARG(int64_t, n_heads);
  /// Probability of dropping an attention weight in training, in [0, 1]; Python's draws are those of
  /// the reference backend (see `AttentionOptions::dropout_p`).
  TORCH_ARG(double, attn_dropout) = 0.0;
};

/// Multi-head attention with dropout on its weights, queries and keys initialised to unit variance
/// (Vaswani et al. 2017, arXiv:1706.03762, section 3.2; Glorot & Bengio 2010):
///
///     head_h = dropout(softmax(mask(Q_h K_hᵀ / √(qk_dim / n_heads)))) V_h
///     out = Wo [head_1 … head_H] + b
///
/// Q and K are drawn from N(0, 2 / (in_dim + qk_dim / n_heads)), V and Wo as `torch::nn::Linear`
/// does; b starts at zero.
///
///     auto options = attn::XavierMultiheadAttentionOptions(64, 64, 64, 64, 8).attn_dropout(0.1);
///     attn::XavierMultiheadAttention mha(options);
///     auto [out, attn] = mha(x, x, x, mask);
class ATTN_API XavierMultiheadAttentionImpl
    : public torch::nn::Cloneable<XavierMultiheadAttentionImpl> {
 public:
  XavierMultiheadAttentionImpl(int64_t in_dim, int64_t qk_dim, int64_t v_dim, int64_t out_dim,
                               int64_t n_heads)
      : XavierMultiheadAttentionImpl(
            XavierMultiheadAttentionOptions(in_dim, qk_dim, v_dim, out_dim, n_heads)) {}
  /// Throws `c10::Error` for sizes below 1, heads that do not divide `qk_dim` and `v_dim`, dropout
  /// outside [0, 1].
  explicit XavierMultiheadAttentionImpl(const XavierMultiheadAttentionOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  /// A deep copy with the same training flags and `requires_grad`; draws no random numbers.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

  /// @param queries [B, L, in_dim]
  /// @param keys [B, S, in_dim]
  /// @param values [B, S, in_dim]
  /// @param mask bool, broadcastable to [B, L, S] with three dimensions; true *attends*. Undefined:
  ///     none. A blocked logit becomes −1e9 (at most the dtype's range), so a row with no open key
  ///     is the plain mean of all S values.
  /// @param need_attn also return the weights
  /// @return out [B, L, out_dim] and the weights [B, H, L, S] after dropout, undefined unless asked
  ///     for
  ///
  /// Throws `c10::Error` for another rank, size, dtype or device, naming the argument.
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& queries,
                                                   const torch::Tensor& keys,
                                                   const torch::Tensor& values,
                                                   const torch::Tensor& mask = {},
                                                   bool need_attn = false);

  XavierMultiheadAttentionOptions options;
  torch::nn::Linear Q{nullptr};
  torch::nn::Linear K{nullptr};
  torch::nn::Linear V{nullptr};
  torch::nn::Linear Wo{nullptr};
  torch::nn::Dropout attn_dropout{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({3, torch::nn::AnyValue(torch::Tensor())},
                           {4, torch::nn::AnyValue(false)})
};

/// A shared handle on `XavierMultiheadAttentionImpl`.
TORCH_MODULE(XavierMultiheadAttention);

}  // namespace attn
