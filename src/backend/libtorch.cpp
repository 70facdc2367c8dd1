#include "backend/libtorch.h"

#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <array>

#include "backend/blocked_keys.h"
#include "backend/causal_offset.h"
#include "backend/refusal.h"
#include "backend/tangent.h"

namespace attn {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

bool is_empty(const AttentionCall& call) {
  return call.query.numel() == 0 || call.key.numel() == 0 || call.value.numel() == 0;
}

bool has_mask_tensor(const Mask& mask) {
  return mask.attend_tensor().defined() || mask.block_tensor().defined() ||
         mask.bias_tensor().defined();
}

bool replaces_logits(const AttentionCall& call) {
  const bool blocks = causal_offset(call).has_value() || call.mask.attend_tensor().defined() ||
                      call.mask.block_tensor().defined();
  return blocks && call.masked_score != kMinusInfinity;
}

bool may_give_nan(const AttentionCall& call) {
  const bool may_block_a_row = has_mask_tensor(call.mask) || causal_offset(call).value_or(0) < 0;
  return may_block_a_row && call.fully_masked == FullyMasked::kNaN;
}

bool carries_tangent(const AttentionCall& call) {
  return has_tangent(call.query) || has_tangent(call.key) || has_tangent(call.value) ||
         has_tangent(call.mask.bias_tensor());
}

constexpr std::array kRefusals = {
    Refusal{is_empty, "a size of query, key or value is 0"},
    Refusal{[](const AttentionCall& call) { return call.logit_clip.has_value(); },
            "it has no logit_clip"},
    Refusal{[](const AttentionCall& call) { return call.softcap.has_value(); },
            "it has no softcap"},
    Refusal{replaces_logits, "it removes blocked keys and has no finite masked_score"},
    Refusal{may_give_nan, "it gives zeros in a row with no open key, not NaN (fully_masked)"},
    Refusal{[](const AttentionCall& call) { return call.dropout_p > 0.0; },
            "it drops other weights than Python does, without saving memory (dropout_p)"},
    Refusal{[](const AttentionCall& call) { return call.need_weights; },
            "it does not return the weights (need_weights)"},
    Refusal{[](const AttentionCall& call) { return call.need_logsumexp; },
            "it does not return the log-sum-exp (need_logsumexp)"},
    Refusal{carries_tangent, "it has no forward-mode derivative"},
    Refusal{[](const AttentionCall& call) { return call.query.is_meta(); },
            "it infers no shapes in C++ (meta tensors)"},
};

/// A mask as SDPA takes it.
struct MaskArguments {
  std::optional<at::Tensor> attn_mask = std::nullopt;  ///< bool, true attends, or additive
  bool is_causal = false;                              ///< aligned at the top left
};

MaskArguments mask_arguments(const AttentionCall& call) {
  const Mask& mask = call.mask;
  const int64_t queries = call.query.size(2);
  const int64_t keys = call.key.size(2);
  if (!has_mask_tensor(mask)) {
    const int64_t offset = causal_offset(call).value_or(keys);
    if (offset >= keys - 1) return {};  // every key is open, as for the one query of decoding
    if (offset == 0) return {.is_causal = true};
  }
  const bool only_attend =
      !causal_offset(call) && !mask.block_tensor().defined() && !mask.bias_tensor().defined();
  if (only_attend) return {mask.attend_tensor()};
  const at::Tensor blocked = blocked_keys(mask, queries, keys, call.query.device());
  if (!mask.bias_tensor().defined()) return {blocked.logical_not()};
  const at::Tensor bias = mask.bias_tensor().to(call.query.scalar_type());
  return {blocked.defined() ? bias.masked_fill(blocked, kMinusInfinity) : bias};
}

}  // namespace

std::optional<std::string> libtorch_refusal(const AttentionCall& call) {
  return first_reason(kRefusals, call);
}

AttentionResult libtorch_attention(const AttentionCall& call) {
  const int64_t batch = std::max({call.query.size(0), call.key.size(0), call.value.size(0)});
  const auto broadcast = [&](const at::Tensor& tensor) {
    return tensor.expand({batch, -1, -1, -1});
  };
  const MaskArguments mask = mask_arguments(call);
  AttentionResult result;
  result.output = at::scaled_dot_product_attention(
      broadcast(call.query), broadcast(call.key), broadcast(call.value), mask.attn_mask,
      /*dropout_p=*/0.0, mask.is_causal, /*scale=*/1.0 / call.divisor,
      /*enable_gqa=*/call.query.size(1) != call.key.size(1));  // [B, H, L, Dv]
  result.backend = Backend::kLibTorch;
  return result;
}

}  // namespace attn
