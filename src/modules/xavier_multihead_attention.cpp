#include <attn/modules/xavier_multihead_attention.h>
#include <torch/nn/init.h>

#include <cmath>

#include "functional/checks.h"
#include "functional/heads.h"
#include "functional/linear.h"
#include "functional/select.h"
#include "modules/checks.h"
#include "modules/clone.h"

namespace attn {
namespace {

constexpr std::string_view kName = "XavierMultiheadAttention";
constexpr double kMaskedScore = -1e9;

/// Refuses what the module does not take; the mask [B|1, L|1, S|1] comes back as one for every
/// head.
Mask check_inputs(const XavierMultiheadAttentionImpl& module, const torch::Tensor& queries,
                  const torch::Tensor& keys, const torch::Tensor& values,
                  const torch::Tensor& mask) {
  const int64_t in_dim = module.options.in_dim();
  check_sequence(kName, "queries", queries, in_dim, "[B, L, in_dim]", module.Q->weight);
  check_sequence(kName, "keys", keys, in_dim, "[B, S, in_dim]", module.K->weight);
  check_sequence(kName, "values", values, in_dim, "[B, S, in_dim]", module.V->weight);
  check_size(kName, "keys", "batch", keys.size(0), queries.size(0), "queries");
  check_size(kName, "values", "batch", values.size(0), queries.size(0), "queries");
  check_size(kName, "values", "length", values.size(1), keys.size(1), "keys");
  if (!mask.defined()) return Mask::none();
  check_bool(kName, "mask", mask);
  check_device(kName, "mask", mask, queries);
  constexpr std::string_view kAdvice =
      "three dimensions that broadcast to [B, L, S] (pass a key padding mask as [B, 1, S])";
  TORCH_CHECK(mask.dim() == 3, "[", kName, "] mask: expected ", kAdvice, ", got ",
              shape_text(mask));
  check_broadcasts(kName, "mask", mask, {queries.size(0), queries.size(1), keys.size(1)}, kAdvice);
  return Mask::attend(mask.unsqueeze(1));  // [B|1, 1, L|1, S|1]
}

}  // namespace

XavierMultiheadAttentionOptions::XavierMultiheadAttentionOptions(int64_t in_dim, int64_t qk_dim,
                                                                 int64_t v_dim, int64_t out_dim,
                                                                 int64_t n_heads)
    : in_dim_(in_dim), qk_dim_(qk_dim), v_dim_(v_dim), out_dim_(out_dim), n_heads_(n_heads) {}

XavierMultiheadAttentionImpl::XavierMultiheadAttentionImpl(
    const XavierMultiheadAttentionOptions& options)
    : options(options) {
  reset();
}

void XavierMultiheadAttentionImpl::reset() {
  check_positive(kName, {{"in_dim", options.in_dim()},
                         {"qk_dim", options.qk_dim()},
                         {"v_dim", options.v_dim()},
                         {"out_dim", options.out_dim()},
                         {"n_heads", options.n_heads()}});
  check_divisible(kName, {"qk_dim", options.qk_dim()}, {"n_heads", options.n_heads()});
  check_divisible(kName, {"v_dim", options.v_dim()}, {"n_heads", options.n_heads()});
  check_probability(kName, "attn_dropout", options.attn_dropout());

  const auto linear = [&](int64_t out) {
    return torch::nn::LinearOptions(options.in_dim(), out).bias(false);
  };
  Q = register_module("Q", torch::nn::Linear(linear(options.qk_dim())));
  K = register_module("K", torch::nn::Linear(linear(options.qk_dim())));
  V = register_module("V", torch::nn::Linear(linear(options.v_dim())));
  Wo = register_module("Wo", torch::nn::Linear(options.v_dim(), options.out_dim()));
  attn_dropout = register_module("attn_dropout", torch::nn::Dropout(options.attn_dropout()));

  // After all default draws, in the document's order: the generator must end where Python's does.
  const auto fans = static_cast<double>(options.in_dim() + options.qk_dim() / options.n_heads());
  torch::nn::init::normal_(Q->weight, 0.0, std::sqrt(2.0 / fans));
  torch::nn::init::normal_(K->weight, 0.0, std::sqrt(2.0 / fans));
  torch::nn::init::zeros_(Wo->bias);
}

void XavierMultiheadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "attn::" << kName << "(in_dim=" << options.in_dim() << ", qk_dim=" << options.qk_dim()
         << ", v_dim=" << options.v_dim() << ", out_dim=" << options.out_dim()
         << ", n_heads=" << options.n_heads() << ", attn_dropout=" << options.attn_dropout() << ")";
}

std::shared_ptr<torch::nn::Module> XavierMultiheadAttentionImpl::clone(
    const std::optional<torch::Device>& device) const {
  auto copy = std::make_shared<XavierMultiheadAttentionImpl>(*this);
  copy->Q = copy->replace_module("Q", clone_map(Q, device));
  copy->K = copy->replace_module("K", clone_map(K, device));
  copy->V = copy->replace_module("V", clone_map(V, device));
  copy->Wo = copy->replace_module("Wo", clone_map(Wo, device));
  copy->attn_dropout = copy->replace_module("attn_dropout", clone_child(attn_dropout, device));
  return copy;
}

std::tuple<torch::Tensor, torch::Tensor> XavierMultiheadAttentionImpl::forward(
    const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& values,
    const torch::Tensor& mask, bool need_attn) {
  const int64_t heads = options.n_heads();
  const Mask checked_mask = check_inputs(*this, queries, keys, values, mask);
  const AttentionResult result =
      run({.query = split_heads(project(Q, queries), heads),  // [B, H, L, D]
           .key = split_heads(project(K, keys), heads),       // [B, H, S, D]
           .value = split_heads(project(V, values), heads),   // [B, H, S, Dv]
           .divisor = std::sqrt(static_cast<double>(options.qk_dim() / heads)),
           .mask = checked_mask,
           .masked_score = kMaskedScore,
           .dropout_p = attn_dropout->is_training() ? attn_dropout->options.p() : 0.0,
           .need_weights = need_attn});
  return {project(Wo, merge_heads(result.output)), result.weights};  // [B, L, out_dim]
}

}  // namespace attn
