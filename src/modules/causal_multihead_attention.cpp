#include <attn/modules/causal_multihead_attention.h>

#include <cmath>

#include "functional/checks.h"
#include "functional/heads.h"
#include "functional/linear.h"
#include "functional/select.h"
#include "modules/checks.h"
#include "modules/clone.h"

namespace attn {
namespace {

constexpr std::string_view kName = "CausalMultiheadAttention";

/// Q [B, L, E], K and V [B, S, E] agree with each other.
void check_functions_inputs(std::string_view function, const at::Tensor& Q, const at::Tensor& K,
                            const at::Tensor& V) {
  check_shape(function, "Q", Q, {-1, -1, -1}, "[B, L, features]");
  check_shape(function, "K", K, {Q.size(0), -1, Q.size(2)},
              "[B, S, features] with the batch and features of Q");
  check_shape(function, "V", V, K.sizes(), "the shape of K");
  check_like(function, "K", K, "Q", Q);
  check_like(function, "V", V, "Q", Q);
  TORCH_CHECK(at::isFloatingType(Q.scalar_type()), "[", function,
              "] Q: expected a floating dtype, got ", Q.scalar_type());
  check_positive(function, {{"Q features", Q.size(2)}});
}

/// Checked inputs, [B, L, H·D] → [B, L, H·D].
at::Tensor attend(const at::Tensor& Q, const at::Tensor& K, const at::Tensor& V, int64_t heads,
                  const Mask& mask) {
  const AttentionResult result = run({.query = split_heads(Q, heads),  // [B, H, L, D]
                                      .key = split_heads(K, heads),    // [B, H, S, D]
                                      .value = split_heads(V, heads),  // [B, H, S, D]
                                      .divisor = std::sqrt(static_cast<double>(Q.size(2) / heads)),
                                      .mask = mask,
                                      .spelling = Spelling::kEinsum});
  return merge_heads(result.output);
}

}  // namespace

at::Tensor single_head_attention(const at::Tensor& Q, const at::Tensor& K, const at::Tensor& V) {
  check_functions_inputs("single_head_attention", Q, K, V);
  return attend(Q, K, V, 1, Mask::none());
}

at::Tensor single_head_masked_attention(const at::Tensor& Q, const at::Tensor& K,
                                        const at::Tensor& V) {
  check_functions_inputs("single_head_masked_attention", Q, K, V);
  return attend(Q, K, V, 1, Mask::causal());
}

at::Tensor multihead_masked_attention(const at::Tensor& Q, const at::Tensor& K, const at::Tensor& V,
                                      int64_t num_heads) {
  constexpr std::string_view kFunction = "multihead_masked_attention";
  check_functions_inputs(kFunction, Q, K, V);
  check_positive(kFunction, {{"num_heads", num_heads}});
  check_divisible(kFunction, {"Q features", Q.size(2)}, {"num_heads", num_heads});
  return attend(Q, K, V, num_heads, Mask::causal());
}

CausalMultiheadAttentionOptions::CausalMultiheadAttentionOptions(int64_t hidden_size,
                                                                 int64_t num_heads)
    : hidden_size_(hidden_size), num_heads_(num_heads) {}

CausalMultiheadAttentionImpl::CausalMultiheadAttentionImpl(
    const CausalMultiheadAttentionOptions& options)
    : options(options) {
  reset();
}

void CausalMultiheadAttentionImpl::reset() {
  check_positive(kName,
                 {{"hidden_size", options.hidden_size()}, {"num_heads", options.num_heads()}});
  check_divisible(kName, {"hidden_size", options.hidden_size()},
                  {"num_heads", options.num_heads()});
  W_QKV =
      register_module("W_QKV", torch::nn::Linear(options.hidden_size(), 3 * options.hidden_size()));
  W_O = register_module("W_O", torch::nn::Linear(options.hidden_size(), options.hidden_size()));
}

void CausalMultiheadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "attn::" << kName << "(hidden_size=" << options.hidden_size()
         << ", num_heads=" << options.num_heads() << ")";
}

std::shared_ptr<torch::nn::Module> CausalMultiheadAttentionImpl::clone(
    const std::optional<torch::Device>& device) const {
  auto copy = std::make_shared<CausalMultiheadAttentionImpl>(*this);
  copy->W_QKV = copy->replace_module("W_QKV", clone_map(W_QKV, device));
  copy->W_O = copy->replace_module("W_O", clone_map(W_O, device));
  return copy;
}

torch::Tensor CausalMultiheadAttentionImpl::forward(const torch::Tensor& x) {
  const int64_t hidden = options.hidden_size();
  check_sequence(kName, "x", x, hidden, "[B, L, hidden_size]", W_QKV->weight);
  // Split at once, so that the backward pass joins their gradients and fills no zeros.
  const auto thirds = project(W_QKV, x).split_with_sizes({hidden, hidden, hidden}, -1);
  return project(W_O, attend(thirds[0], thirds[1], thirds[2], options.num_heads(),
                             Mask::causal()));  // [B, L, hidden_size]
}

}  // namespace attn
