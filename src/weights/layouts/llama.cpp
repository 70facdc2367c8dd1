#include <ATen/ops/cat.h>

#include "weights/layouts/layout.h"

namespace attn::layouts {
namespace {

std::string groups_are_whole(const Sizes& sizes) {
  const int64_t queries = sizes.at("H·D"), keys = sizes.at("Hk·D");
  if (queries % keys == 0) return "";
  return "expected k_proj.weight [Hk·D, E] where Hk divides the heads of q_proj.weight [" +
         std::to_string(queries) + ", E], got [" + std::to_string(keys) + ", E]";
}

NamedTensors convert(const Checked& layer) {
  if (layer.n_heads > 0) {
    const int64_t keys = layer.sizes.at("Hk·D"), head = layer.sizes.at("H·D") / layer.n_heads;
    TORCH_CHECK(keys % head == 0, "[convert_layout] n_heads: expected heads whose size divides ",
                keys, " (from k_proj.weight), got ", layer.n_heads, " heads of size ", head);
  }
  NamedTensors map = {{"q_proj_weight", layer["q_proj.weight"]},
                      {"k_proj_weight", layer["k_proj.weight"]},
                      {"v_proj_weight", layer["v_proj.weight"]}};
  if (layer["q_proj.bias"].defined()) {
    map.emplace_back("in_proj_bias",
                     at::cat({layer["q_proj.bias"], layer["k_proj.bias"], layer["v_proj.bias"]}));
  }
  map.emplace_back("out_proj.weight", layer["o_proj.weight"]);
  if (layer["o_proj.bias"].defined()) map.emplace_back("out_proj.bias", layer["o_proj.bias"]);
  return map;
}

}  // namespace

Layout llama() {
  return {.about = {.name = "llama",
                    .from = "Hugging Face LLaMA, Mistral, Qwen2 and alike: self_attn",
                    .to = "the names of torch.nn.MultiheadAttention with separate projections, "
                          "whose caller rotates"},
          .source = {.tensors = {{"q_proj.weight", "[H·D, E]"},
                                 {"q_proj.bias", "[H·D]", Need::kWithBias},
                                 {"k_proj.weight", "[Hk·D, E]"},
                                 {"k_proj.bias", "[Hk·D]", Need::kWithBias},
                                 {"v_proj.weight", "[Hk·D, E]"},
                                 {"v_proj.bias", "[Hk·D]", Need::kWithBias},
                                 {"o_proj.weight", "[E, H·D]"},
                                 {"o_proj.bias", "[E]", Need::kOptional},
                                 {"rotary_emb.inv_freq", "", Need::kLeftOut}},
                     .broken_rule = groups_are_whole},
          .split = "H·D",
          .convert = convert};
}

}  // namespace attn::layouts
