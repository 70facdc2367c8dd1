#include <ATen/ExpandUtils.h>
#include <attn/modules/projected_multihead_attention.h>

#include <cmath>

#include "backend/reference.h"
#include "functional/checks.h"
#include "modules/attention_score.h"

namespace attn {
namespace {

constexpr std::string_view kName = "AttentionScore";

/// Refuses tensors that do not multiply to logits; returns the shape [..., L, S] of these.
std::vector<int64_t> check_inputs(const torch::Tensor& query, const torch::Tensor& key) {
  TORCH_CHECK(query.defined() && query.dim() >= 2 && query.size(-1) > 0, "[", kName,
              "] query: expected [..., L, D] with D at least 1, got ", shape_text(query));
  TORCH_CHECK(key.defined() && key.dim() >= 2, "[", kName, "] key: expected [..., S, D], got ",
              shape_text(key));
  check_like(kName, "key", key, "query", query);
  check_size(kName, "key", "feature size", key.size(-1), query.size(-1), "query");

  const auto lead = [](const torch::Tensor& tensor) {
    return tensor.sizes().slice(0, tensor.dim() - 2);
  };
  const bool broadcasts = at::are_expandable(lead(query), lead(key));
  TORCH_CHECK(broadcasts, "[", kName,
              "] key: expected leading dimensions that broadcast with those of query, ",
              lead(query), ", got ", lead(key));
  std::vector<int64_t> shape = at::infer_size(lead(query), lead(key));
  shape.insert(shape.end(), {query.size(-2), key.size(-2)});
  return shape;
}

/// The mask so that it broadcasts to the logits, or undefined.
torch::Tensor check_mask(const torch::Tensor& mask, const torch::Tensor& query,
                         at::IntArrayRef logits_shape) {
  if (!mask.defined()) return mask;
  check_bool(kName, "mask", mask);
  check_device(kName, "mask", mask, query);
  if (at::is_expandable_to(mask.sizes(), logits_shape)) return mask;
  const bool one_query = logits_shape[logits_shape.size() - 2] == 1;
  if (one_query && mask.dim() > 0) {
    torch::Tensor keys = mask.unsqueeze(-2);  // [..., 1, S]
    if (at::is_expandable_to(keys.sizes(), logits_shape)) return keys;
  }
  TORCH_CHECK(false, "[", kName,
              "] mask: expected a shape that broadcasts to the logits [..., L, S] = ", logits_shape,
              one_query ? " or, with one query, to [..., S]" : "", ", got ", shape_text(mask));
}

}  // namespace

AttentionScoreImpl::AttentionScoreImpl(const AttentionScoreOptions& options) : options(options) {}

void AttentionScoreImpl::pretty_print(std::ostream& stream) const {
  stream << "attn::" << kName << "(use_tanh=" << (options.use_tanh() ? "true" : "false")
         << ", C=" << options.C() << ")";
}

torch::Tensor AttentionScoreImpl::forward(const torch::Tensor& query, const torch::Tensor& key,
                                          const torch::Tensor& mask) {
  const torch::Tensor blocked = check_mask(mask, query, check_inputs(query, key));
  const double divisor = std::sqrt(static_cast<double>(query.size(-1)));
  torch::Tensor logits = reference_logits(query, key, divisor, logit_clip(options));
  if (blocked.defined()) logits.masked_fill_(blocked, -std::numeric_limits<double>::infinity());
  return logits;  // [..., L, S]
}

}  // namespace attn
