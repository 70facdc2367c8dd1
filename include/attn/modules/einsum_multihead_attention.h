#pragma once

#include <attn/export.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace attn {

/// Options of `EinsumMultiheadAttention`.
struct ATTN_API EinsumMultiheadAttentionOptions {
  EinsumMultiheadAttentionOptions(int64_t embed_size, int64_t num_heads);

  /// Features of values, keys, query and output; a multiple of `num_heads`.
  TORCH_ARG(int64_t, embed_size);
  TORCH_ARG(int64_t, num_heads);
};

/// Multi-head attention whose heads share one map each for values, keys and queries, scaled by the
/// width of the embedding (after Vaswani et al. 2017, arXiv:1706.03762, who scale by that of a
/// head):
///
///     head_h = softmax(mask(W_q q_h (W_k k_h)ᵀ) / √embed_size) W_v v_h
///     out = W_o [head_1 … head_H] + b
///
/// with x_h the h-th slice of embed_size / num_heads features. Mind the order of the arguments:
/// values, keys, query.
///
///     attn::EinsumMultiheadAttention mha(256, 8);
///     auto out = mha(values, keys, query);
class ATTN_API EinsumMultiheadAttentionImpl
    : public torch::nn::Cloneable<EinsumMultiheadAttentionImpl> {
 public:
  EinsumMultiheadAttentionImpl(int64_t embed_size, int64_t num_heads)
      : EinsumMultiheadAttentionImpl(EinsumMultiheadAttentionOptions(embed_size, num_heads)) {}
  /// Throws `c10::Error` for sizes below 1 and heads that do not divide `embed_size`.
  explicit EinsumMultiheadAttentionImpl(const EinsumMultiheadAttentionOptions& options);

  void reset() override;
  void pretty_print(std::ostream& stream) const override;
  /// A deep copy with the same training flags and `requires_grad`; draws no random numbers.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

  /// @param values [B, S, embed_size]
  /// @param keys [B, S, embed_size]
  /// @param query [B, L, embed_size]
  /// @param mask any dtype, [L, S] or broadcastable to [B, H, L, S] with four dimensions; *zero
  ///     blocks*, all else attends. Undefined: none. A blocked score becomes −1e20 before the
  ///     scaling, so a row with no open key is the plain mean of all S values.
  /// @return [B, L, embed_size]
  ///
  /// Throws `c10::Error` for another rank, size, dtype or device, naming the argument; also for a
  /// floating mask that holds −∞, which was meant to be added.
  torch::Tensor forward(const torch::Tensor& values, const torch::Tensor& keys,
                        const torch::Tensor& query, const torch::Tensor& mask = {});

  EinsumMultiheadAttentionOptions options;
  /// The maps shared by all heads, [embed_size / num_heads, embed_size / num_heads], without bias.
  torch::nn::Linear values{nullptr};
  torch::nn::Linear keys{nullptr};
  torch::nn::Linear queries{nullptr};
  torch::nn::Linear fc_out{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({3, torch::nn::AnyValue(torch::Tensor())})
};

/// A shared handle on `EinsumMultiheadAttentionImpl`.
TORCH_MODULE(EinsumMultiheadAttention);

}  // namespace attn
