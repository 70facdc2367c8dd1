#include "functional/checks.h"
#include "modules/checks.h"
#include "modules/clone.h"
#include "modules/preprojected_attention.h"
#include "modules/projected_mask.h"

namespace attn {
namespace {

constexpr std::string_view kName = "PreprojectedMultiheadAttention";

}  // namespace

ProjectedMultiheadAttentionOptions::ProjectedMultiheadAttentionOptions(int64_t embedding_dim)
    : embedding_dim_(embedding_dim) {}

PreprojectedMultiheadAttentionImpl::PreprojectedMultiheadAttentionImpl(
    const PreprojectedMultiheadAttentionOptions& options)
    : options(options) {
  reset();
}

void PreprojectedMultiheadAttentionImpl::reset() {
  check_options(kName, options);
  attentionScore = register_module("attentionScore", AttentionScore());
  project_out = register_module("project_out", square_map(options.embedding_dim()));
}

void PreprojectedMultiheadAttentionImpl::pretty_print(std::ostream& stream) const {
  print_options(stream, kName, options);
}

std::shared_ptr<torch::nn::Module> PreprojectedMultiheadAttentionImpl::clone(
    const std::optional<torch::Device>& device) const {
  auto copy = std::make_shared<PreprojectedMultiheadAttentionImpl>(*this);
  copy->attentionScore =
      copy->replace_module("attentionScore", clone_child(attentionScore, device));
  copy->project_out = copy->replace_module("project_out", clone_map(project_out, device));
  return copy;
}

torch::Tensor PreprojectedMultiheadAttentionImpl::forward(const torch::Tensor& query,
                                                          const torch::Tensor& key,
                                                          const torch::Tensor& value,
                                                          const torch::Tensor& mask) {
  const int64_t dim = options.embedding_dim();
  check_sequence(kName, "query", query, dim, "[B, L, embedding_dim]", project_out->weight);
  check_sequence(kName, "key", key, dim, "[B, S, embedding_dim]", project_out->weight);
  check_sequence(kName, "value", value, dim, "[B, S, embedding_dim]", project_out->weight);
  check_size(kName, "value", "length", value.size(1), key.size(1), "key");
  int64_t batch = check_batch(kName, "key", key, "query", query.size(0));
  batch = check_batch(kName, "value", value, "query and key", batch);
  const Mask blocked =
      projected_mask(kName, mask, query, {batch, options.n_heads(), query.size(1), key.size(1)},
                     TwoDimensions::kRefused);
  return preprojected_attention(options, *this, query, key, value, blocked);
}

}  // namespace attn
