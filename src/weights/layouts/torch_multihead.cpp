#include "weights/layouts/layout.h"

namespace attn::layouts {
namespace {

NamedTensors to_causal(const Checked& layer) {
  return causal(layer["in_proj_weight"], layer["in_proj_bias"], layer["out_proj.weight"],
                layer["out_proj.bias"]);
}

NamedTensors from_causal(const Checked& layer) {
  return {{"in_proj_weight", layer["W_QKV.weight"]},
          {"in_proj_bias", layer["W_QKV.bias"]},
          {"out_proj.weight", layer["W_O.weight"]},
          {"out_proj.bias", layer["W_O.bias"]}};
}

}  // namespace

Layout torch_multihead() {
  return {.about = {.name = "torch-multihead",
                    .from = "torch.nn.MultiheadAttention, with or without bias",
                    .to = "CausalMultiheadAttention"},
          .source = {.tensors = {{"in_proj_weight", "[3·E, E]"},
                                 {"in_proj_bias", "[3·E]", Need::kWithBias},
                                 {"out_proj.weight", "[E, E]"},
                                 {"out_proj.bias", "[E]", Need::kWithBias}}},
          .split = "E",
          .convert = to_causal};
}

Layout to_torch_multihead() {
  return {.about = {.name = "to-torch-multihead",
                    .from = "CausalMultiheadAttention",
                    .to = "torch.nn.MultiheadAttention"},
          .source = {.tensors = {{"W_QKV.weight", "[3·E, E]"},
                                 {"W_QKV.bias", "[3·E]"},
                                 {"W_O.weight", "[E, E]"},
                                 {"W_O.bias", "[E]"}}},
          .split = "E",
          .convert = from_causal};
}

}  // namespace attn::layouts
