#include <attn/functional.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <sstream>

#include "backend/call.h"
#include "functional/checks.h"
#include "functional/select.h"

namespace attn {
namespace {

constexpr std::string_view kWhere = "attention";

void check_tensors(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  TORCH_CHECK(query.defined() && (query.dim() == 3 || query.dim() == 4),
              "[attention] query: expected [B, H, L, D] or [H, L, D], got ", shape_text(query));
  const auto dtype = query.scalar_type();
  TORCH_CHECK(
      dtype == at::kFloat || dtype == at::kDouble || dtype == at::kBFloat16 || dtype == at::kHalf,
      "[attention] query: expected float32, float64, bfloat16 or float16, got ", dtype);
  const int64_t head_dim = query.size(-1);
  TORCH_CHECK(head_dim > 0, "[attention] query: expected a head size D of at least 1, got ",
              shape_text(query));
  const bool batched = query.dim() == 4;
  const auto check_operand = [&](std::string_view name, const at::Tensor& tensor,
                                 std::string_view layout) {
    TORCH_CHECK(tensor.defined() && tensor.dim() == query.dim(), "[attention] ", name,
                ": expected ", batched ? "[B, " : "[", layout, "] as query has ", query.dim(),
                " dimensions, got ", shape_text(tensor));
    check_like(kWhere, name, tensor, "query", query);
    if (batched) check_size(kWhere, name, "batch", tensor.size(0), query.size(0), "query");
  };
  check_operand("key", key, "Hk, S, D");
  check_operand("value", value, "Hk, S, Dv");
  check_size(kWhere, "key", "head size", key.size(-1), head_dim, "query");
  check_size(kWhere, "value", "length", value.size(-2), key.size(-2), "key");
  check_size(kWhere, "value", "heads", value.size(-3), key.size(-3), "key");
  const int64_t heads = query.size(-3);
  const int64_t key_heads = key.size(-3);
  TORCH_CHECK(key_heads > 0 ? heads % key_heads == 0 : heads == 0,
              "[attention] key heads: expected a divisor of ", heads, " (from query), got ",
              key_heads);
}

void check_mask(const Mask& mask, const at::Tensor& query, at::IntArrayRef logits_shape) {
  const auto check = [&](const std::string& maker, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    std::ostringstream advice;
    advice << "Mask::" << maker << " to broadcast to [B, H, L, S] = " << logits_shape;
    check_broadcasts(kWhere, "mask", tensor, logits_shape, advice.str());
    check_device(kWhere, "mask", tensor, query);
  };
  check("attend", mask.attend_tensor());
  check("block", mask.block_tensor());
  check("bias", mask.bias_tensor());
}

void check_options(const AttentionOptions& options) {
  const auto check_finite = [](std::string_view name, const std::optional<double>& number) {
    TORCH_CHECK(!number || std::isfinite(*number), "[attention] ", name,
                ": expected a finite number, got ", *number);
  };
  const auto check_above_zero = [](std::string_view name, const std::optional<double>& number) {
    TORCH_CHECK(!number || *number > 0.0, "[attention] ", name,
                ": expected a positive number, got ", *number);
  };
  check_finite("scale", options.scale());
  check_finite("logit_clip", options.logit_clip());
  check_finite("softcap", options.softcap());
  check_above_zero("logit_clip", options.logit_clip());
  check_above_zero("softcap", options.softcap());
  TORCH_CHECK(!options.logit_clip() || !options.softcap(),
              "[attention] softcap: expected at most one of logit_clip and softcap, got both");
  TORCH_CHECK(options.masked_score() < std::numeric_limits<double>::infinity(),
              "[attention] masked_score: expected a finite number or −∞, got ",
              options.masked_score());
  check_probability(kWhere, "dropout_p", options.dropout_p());
}

/// The one way from public arguments to a call.
AttentionCall checked_call(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const AttentionOptions& options) {
  check_tensors(query, key, value);
  check_options(options);
  const auto batched = [](const at::Tensor& tensor) {
    return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor;
  };
  AttentionCall call{batched(query), batched(key), batched(value)};
  check_mask(options.mask(), query,
             {call.query.size(0), call.query.size(1), query.size(-2), key.size(-2)});
  call.divisor =
      options.scale() ? 1.0 / *options.scale() : std::sqrt(static_cast<double>(query.size(-1)));
  call.logit_clip = options.logit_clip();
  call.softcap = options.softcap();
  call.mask = options.mask();
  call.masked_score = options.masked_score();
  call.fully_masked = options.fully_masked();
  call.dropout_p = options.dropout_p();
  call.need_weights = options.need_weights();
  call.need_logsumexp = options.need_logsumexp();
  return call;
}

}  // namespace

AttentionResult attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const AttentionOptions& options) {
  AttentionResult result = run(checked_call(query, key, value, options), options.backend());
  if (query.dim() == 3) {
    for (at::Tensor* tensor : {&result.output, &result.weights, &result.logsumexp}) {
      if (tensor->defined()) *tensor = tensor->squeeze(0);
    }
  }
  return result;
}

std::optional<std::string> why_not(Backend backend, const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value, const AttentionOptions& options) {
  return refusal(backend, checked_call(query, key, value, options));
}

}  // namespace attn
