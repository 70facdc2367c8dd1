#pragma once

#include <attn/export.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace attn {

/// softmax(Q Kᵀ / √D) V on one head (Vaswani et al. 2017, arXiv:1706.03762, equation 1).
///
/// @param Q [B, L, D]
/// @param K [B, S, D]
/// @param V [B, S, D]
/// @return [B, L, D]
///
/// Throws `c10::Error` for another rank, size, dtype or device, naming the argument.
ATTN_API at::Tensor single_head_attention(const at::Tensor& Q, const at::Tensor& K,
                                          const at::Tensor& V);

/// As `single_head_attention`; query i sees the keys k ≤ i, both counted from the start, also when
/// L ≠ S.
ATTN_API at::Tensor single_head_masked_attention(const at::Tensor& Q, const at::Tensor& K,
                                                 const at::Tensor& V);

/// As `single_head_masked_attention` on `num_heads` slices of the features.
///
/// @param Q [B, L, H·D]
/// @param K [B, S, H·D]
/// @param V [B, S, H·D]
/// @return [B, L, H·D]
ATTN_API at::Tensor multihead_masked_attention(const at::Tensor& Q, const at::Tensor& K,
                                               const at::Tensor& V, int64_t num_heads);

/// Options of `CausalMultiheadAttention`.
struct ATTN_API CausalMultiheadAttentionOptions {
  CausalMultiheadAttentionOptions(int64_t hidden_size, int64_t num_heads);

  /// Features of input and output; a multiple of `num_heads`.
  TORCH_ARG(int64_t, hidden_size);
  TORCH_ARG(int64_t, num_heads);
};

/// Causal self-attention with one fused projection (the decoder of Vaswani et al. 2017,
/// arXiv:1706.03762, section 3.2.3):
///
///     [Q | K | V] = W_QKV x + b,   out = W_O multihead_masked_attention(Q, K, V) + b_O
///
///     attn::CausalMultiheadAttention mha(512, 8);
///     auto out = mha(x);
class ATTN_API CausalMultiheadAttentionImpl
    : public torch::nn::Cloneable<CausalMultiheadAttentionImpl> {
 public:
  CausalMultiheadAttentionImpl(int64_t hidden_size, int64_t num_heads)
      : CausalMultiheadAttentionImpl(CausalMultiheadAttentionOptions(hidden_size, num_heads)) {}
  /// Throws `c10::Error` for sizes below 1 and heads that do not divide `hidden_size`.
  explicit CausalMultiheadAttentionImpl(const CausalMultiheadAttentionOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  /// A deep copy with the same training flags and `requires_grad`; draws no random numbers.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

  /// @param x [B, L, hidden_size]
  /// @return [B, L, hidden_size]
  ///
  /// Throws `c10::Error` for another rank, size, dtype or device, naming the argument.
  torch::Tensor forward(const torch::Tensor& x);

  CausalMultiheadAttentionOptions options;
  /// [3·hidden_size, hidden_size] with bias: the rows of Q, then K, then V, each head after head.
  torch::nn::Linear W_QKV{nullptr};
  torch::nn::Linear W_O{nullptr};
};

/// A shared handle on `CausalMultiheadAttentionImpl`.
TORCH_MODULE(CausalMultiheadAttention);

}  // namespace attn
