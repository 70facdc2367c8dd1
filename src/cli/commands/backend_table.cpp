#include "cli/commands/backend_table.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <attn/functional.h>

namespace attn::cli {
namespace {

/// A call of four queries and five keys.
struct Call {
  std::string name;
  AttentionOptions options = {};
  int64_t key_heads = 2;
  int64_t value_size = 8;
  at::ScalarType dtype = at::kFloat;
  bool gradient = false;
};

std::vector<Call> calls() {
  const auto masked = [] {
    return AttentionOptions().mask(Mask::attend(at::ones({4, 5}, at::kBool)));
  };
  const Mask bias = Mask::bias(at::ones({4, 5}));
  return {
      {"plain", {}},
      {"causal", AttentionOptions().mask(Mask::causal())},
      {"bool mask", masked()},
      {"additive mask", AttentionOptions().mask(bias)},
      {"logit_clip", AttentionOptions().logit_clip(10.0)},
      {"softcap", AttentionOptions().softcap(50.0)},
      {"finite masked_score", masked().masked_score(-1e9)},
      {"fully masked rows NaN", masked().fully_masked(FullyMasked::kNaN)},
      {"need_weights", AttentionOptions().need_weights(true)},
      {"need_logsumexp", AttentionOptions().need_logsumexp(true)},
      {"grouped heads", {}, /*key_heads=*/1},
      {"another value size", {}, /*key_heads=*/2, /*value_size=*/6},
      {"dropout", AttentionOptions().dropout_p(0.1)},
      {.name = "gradient", .gradient = true},
      {.name = "gradient and weights",
       .options = AttentionOptions().need_weights(true),
       .gradient = true},
      {.name = "float32", .dtype = at::kFloat},
      {.name = "float64", .dtype = at::kDouble},
      {.name = "bfloat16", .dtype = at::kBFloat16},
      {.name = "float16", .dtype = at::kHalf},
  };
}

BackendRow ask(const Call& call) {
  const at::AutoGradMode gradients(call.gradient);
  const at::Tensor query = at::ones({1, 2, 4, 8}, call.dtype).set_requires_grad(call.gradient);
  const at::Tensor key = at::ones({1, call.key_heads, 5, 8}, call.dtype);
  const at::Tensor value = at::ones({1, call.key_heads, 5, call.value_size}, call.dtype);
  BackendRow row{call.name, {}};
  for (const Backend backend : available_backends()) {
    row.refusals.push_back(why_not(backend, query, key, value, call.options));
  }
  return row;
}

}  // namespace

std::vector<BackendRow> backend_table() {
  std::vector<BackendRow> rows;
  for (const Call& call : calls()) rows.push_back(ask(call));
  return rows;
}

}  // namespace attn::cli
