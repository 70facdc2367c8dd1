#include <attn/modules/projected_multihead_attention.h>

#include "functional/checks.h"
#include "functional/linear.h"
#include "modules/checks.h"
#include "modules/clone.h"
#include "modules/preprojected_attention.h"
#include "modules/projected_mask.h"

namespace attn {
namespace {

constexpr std::string_view kName = "ProjectedMultiheadAttention";

}  // namespace

ProjectedMultiheadAttentionImpl::ProjectedMultiheadAttentionImpl(
    const ProjectedMultiheadAttentionOptions& options)
    : options(options) {
  reset();
}

void ProjectedMultiheadAttentionImpl::reset() {
  check_options(kName, options);
  queryEncoder = register_module("queryEncoder", square_map(options.embedding_dim()));
  keyEncoder = register_module("keyEncoder", square_map(options.embedding_dim()));
  valueEncoder = register_module("valueEncoder", square_map(options.embedding_dim()));
  MHA = register_module("MHA", PreprojectedMultiheadAttention(options));
}

void ProjectedMultiheadAttentionImpl::pretty_print(std::ostream& stream) const {
  print_options(stream, kName, options);
}

std::shared_ptr<torch::nn::Module> ProjectedMultiheadAttentionImpl::clone(
    const std::optional<torch::Device>& device) const {
  auto copy = std::make_shared<ProjectedMultiheadAttentionImpl>(*this);
  copy->queryEncoder = copy->replace_module("queryEncoder", clone_map(queryEncoder, device));
  copy->keyEncoder = copy->replace_module("keyEncoder", clone_map(keyEncoder, device));
  copy->valueEncoder = copy->replace_module("valueEncoder", clone_map(valueEncoder, device));
  copy->MHA = copy->replace_module("MHA", clone_child(MHA, device));
  return copy;
}

torch::Tensor ProjectedMultiheadAttentionImpl::forward(const torch::Tensor& q,
                                                       const torch::Tensor& h,
                                                       const torch::Tensor& mask) {
  const torch::Tensor& nodes = h.defined() ? h : q;
  check_sequence(kName, "q", q, options.embedding_dim(), "[B, L, embedding_dim]",
                 queryEncoder->weight);
  check_sequence(kName, "h", nodes, options.embedding_dim(), "[B, S, embedding_dim]",
                 keyEncoder->weight);
  const int64_t batch = check_batch(kName, "h", nodes, "q", q.size(0));
  const Mask blocked =
      projected_mask(kName, mask, q, {batch, options.n_heads(), q.size(1), nodes.size(1)},
                     TwoDimensions::kKeysPerBatch);
  // One after the other: autograd sums the gradients of a shared input in the reverse of this order.
  const torch::Tensor query = project(queryEncoder, q);
  const torch::Tensor key = project(keyEncoder, nodes);
  const torch::Tensor value = project(valueEncoder, nodes);
  return preprojected_attention(options, *MHA, query, key, value,
                                blocked);  // [B, L, embedding_dim]
}

}  // namespace attn
