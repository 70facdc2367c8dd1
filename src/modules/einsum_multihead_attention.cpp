#include <attn/modules/einsum_multihead_attention.h>

#include <cmath>

#include "functional/checks.h"
#include "functional/heads.h"
#include "functional/linear.h"
#include "functional/select.h"
#include "modules/checks.h"
#include "modules/clone.h"

namespace attn {
namespace {

constexpr std::string_view kName = "EinsumMultiheadAttention";
constexpr double kMaskedScore = -1e20;

/// Scores that additive masks use to block, −∞ and the lowest finite numbers, and that no multiplier does.
constexpr double kAdditive = -1e4;

bool looks_additive(const torch::Tensor& mask) {
  if (!at::isFloatingType(mask.scalar_type()) || mask.is_meta()) return false;
  return mask.to(at::kFloat).le(kAdditive).any().item<bool>();
}

/// Refuses what the module does not take; the mask comes back with its polarity in its name.
Mask check_inputs(const EinsumMultiheadAttentionImpl& module, const torch::Tensor& values,
                  const torch::Tensor& keys, const torch::Tensor& query,
                  const torch::Tensor& mask) {
  const int64_t embed_size = module.options.embed_size();
  check_sequence(kName, "query", query, embed_size, "[B, L, embed_size]", module.queries->weight);
  check_sequence(kName, "keys", keys, embed_size, "[B, S, embed_size]", module.keys->weight);
  check_sequence(kName, "values", values, embed_size, "[B, S, embed_size]", module.values->weight);
  check_size(kName, "keys", "batch", keys.size(0), query.size(0), "query");
  check_size(kName, "values", "batch", values.size(0), query.size(0), "query");
  check_size(kName, "values", "length", values.size(1), keys.size(1), "keys");
  if (!mask.defined()) return Mask::none();

  constexpr std::string_view kAdvice =
      "[L, S] or four dimensions that broadcast to [B, H, L, S] (pass a mask per batch as [B, 1, "
      "L, S])";
  TORCH_CHECK(mask.dim() == 2 || mask.dim() == 4, "[", kName, "] mask: expected ", kAdvice,
              ", got ", shape_text(mask));
  check_broadcasts(kName, "mask", mask,
                   {query.size(0), module.options.num_heads(), query.size(1), keys.size(1)},
                   kAdvice);
  check_device(kName, "mask", mask, query);
  if (mask.scalar_type() == at::kBool) return Mask::attend(mask);
  TORCH_CHECK(!looks_additive(mask), "[", kName,
              "] mask: expected zero to block and other values to attend, got values of ",
              kAdditive, " or less (an additive mask would be inverted: pass mask.eq(0))");
  return Mask::block(mask.eq(0));
}

}  // namespace

EinsumMultiheadAttentionOptions::EinsumMultiheadAttentionOptions(int64_t embed_size,
                                                                 int64_t num_heads)
    : embed_size_(embed_size), num_heads_(num_heads) {}

EinsumMultiheadAttentionImpl::EinsumMultiheadAttentionImpl(
    const EinsumMultiheadAttentionOptions& options)
    : options(options) {
  reset();
}

void EinsumMultiheadAttentionImpl::reset() {
  check_positive(kName, {{"embed_size", options.embed_size()}, {"num_heads", options.num_heads()}});
  check_divisible(kName, {"embed_size", options.embed_size()}, {"num_heads", options.num_heads()});

  const int64_t head_dim = options.embed_size() / options.num_heads();
  const auto shared = torch::nn::LinearOptions(head_dim, head_dim).bias(false);
  values = register_module("values", torch::nn::Linear(shared));
  keys = register_module("keys", torch::nn::Linear(shared));
  queries = register_module("queries", torch::nn::Linear(shared));
  fc_out = register_module("fc_out", torch::nn::Linear(options.embed_size(), options.embed_size()));
}

void EinsumMultiheadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "attn::" << kName << "(embed_size=" << options.embed_size()
         << ", num_heads=" << options.num_heads() << ")";
}

std::shared_ptr<torch::nn::Module> EinsumMultiheadAttentionImpl::clone(
    const std::optional<torch::Device>& device) const {
  auto copy = std::make_shared<EinsumMultiheadAttentionImpl>(*this);
  copy->values = copy->replace_module("values", clone_map(values, device));
  copy->keys = copy->replace_module("keys", clone_map(keys, device));
  copy->queries = copy->replace_module("queries", clone_map(queries, device));
  copy->fc_out = copy->replace_module("fc_out", clone_map(fc_out, device));
  return copy;
}

torch::Tensor EinsumMultiheadAttentionImpl::forward(const torch::Tensor& values,
                                                    const torch::Tensor& keys,
                                                    const torch::Tensor& query,
                                                    const torch::Tensor& mask) {
  const Mask checked_mask = check_inputs(*this, values, keys, query, mask);
  // pow, not sqrt: the document writes embed_size ** (1 / 2).
  const double divisor = std::pow(static_cast<double>(options.embed_size()), 0.5);
  const auto project_heads = [&](const torch::nn::Linear& map, const torch::Tensor& x) {
    const torch::Tensor heads =
        split_heads(x, options.num_heads()).transpose(1, 2);  // [B, L, H, D]
    return project(map, heads).transpose(1, 2);               // [B, H, L, D]
  };
  // The document's order: autograd sums the gradients of a shared input in the reverse of it.
  const torch::Tensor value_heads = project_heads(this->values, values);
  const torch::Tensor key_heads = project_heads(this->keys, keys);
  const torch::Tensor query_heads = project_heads(queries, query);
  const AttentionResult result = run({.query = query_heads,
                                      .key = key_heads,
                                      .value = value_heads,
                                      .divisor = divisor,
                                      .mask = checked_mask,
                                      .masked_score = kMaskedScore / divisor,
                                      .spelling = Spelling::kEinsum});
  return project(fc_out, merge_heads(result.output));  // [B, L, embed_size]
}

}  // namespace attn
