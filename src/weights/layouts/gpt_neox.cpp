#include "weights/layouts/layout.h"

namespace attn::layouts {
namespace {

/// Rows in the order head, then query | key | value, become query | key | value, then head.
at::Tensor by_map(const at::Tensor& tensor, int64_t heads) {
  if (!tensor.defined()) return tensor;
  const int64_t head = tensor.size(0) / 3 / heads;
  return tensor
      .unflatten(0, {heads, 3, head})  // [H, 3, D] and for weights E
      .transpose(0, 1)
      .flatten(0, 2)
      .contiguous();
}

NamedTensors convert(const Checked& layer) {
  return causal(by_map(layer["query_key_value.weight"], layer.n_heads),
                by_map(layer["query_key_value.bias"], layer.n_heads), layer["dense.weight"],
                layer["dense.bias"]);
}

}  // namespace

Layout gpt_neox() {
  return {.about = {.name = "gpt-neox",
                    .from = "Hugging Face GPT-NeoX and Pythia: attention, interleaved by head",
                    .to = "the names of CausalMultiheadAttention, whose caller rotates"},
          .source = {.tensors = {{"query_key_value.weight", "[3·E, E]"},
                                 {"query_key_value.bias", "[3·E]", Need::kWithBias},
                                 {"dense.weight", "[E, E]"},
                                 {"dense.bias", "[E]", Need::kWithBias},
                                 {"rotary_emb.inv_freq", "", Need::kLeftOut},
                                 {"bias", "", Need::kLeftOut},
                                 {"masked_bias", "", Need::kLeftOut}}},
          .split = "E",
          .needs_heads = true,
          .convert = convert};
}

}  // namespace attn::layouts
