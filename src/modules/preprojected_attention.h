#pragma once

#include <attn/modules/projected_multihead_attention.h>

/// What `PreprojectedMultiheadAttention` and `ProjectedMultiheadAttention` share.
namespace attn {

/// Refuses sizes below 1 and heads that do not divide the embedding.
void check_options(std::string_view module, const ProjectedMultiheadAttentionOptions& options);

/// Batches agree, or are 1 and broadcast; returns the common one.
int64_t check_batch(std::string_view module, std::string_view name, const at::Tensor& tensor,
                    std::string_view from, int64_t batch);

/// W_O [head_1 … head_H] of checked inputs, clipped as `mha.attentionScore` says; `options` are those
/// of the module that was called. [B|1, L, E], [B|1, S, E], [B|1, S, E] → [B, L, E]
at::Tensor preprojected_attention(const ProjectedMultiheadAttentionOptions& options,
                                  const PreprojectedMultiheadAttentionImpl& mha,
                                  const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value, const Mask& mask);

/// "attn::module(embedding_dim=…, n_heads=…)".
void print_options(std::ostream& stream, std::string_view module,
                   const ProjectedMultiheadAttentionOptions& options);

/// A map of `dim` features onto as many, without bias.
torch::nn::Linear square_map(int64_t dim);

}  // namespace attn
