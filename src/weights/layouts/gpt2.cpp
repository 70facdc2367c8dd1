#include "weights/layouts/layout.h"

namespace attn::layouts {
namespace {

NamedTensors from_conv1d(const Checked& layer) {
  return causal(layer["c_attn.weight"].t().contiguous(), layer["c_attn.bias"],  // [3·E, E]
                layer["c_proj.weight"].t().contiguous(), layer["c_proj.bias"]);
}

NamedTensors from_linear(const Checked& layer) {
  return causal(layer["c_attn.weight"], layer["c_attn.bias"], layer["c_proj.weight"],
                layer["c_proj.bias"]);
}

}  // namespace

Layout gpt2() {
  return {.about = {.name = "gpt2",
                    .from = "OpenAI's and Hugging Face's GPT-2: attn, of Conv1D maps",
                    .to = "CausalMultiheadAttention"},
          .source = {.tensors = {{"c_attn.weight", "[E, 3·E]"},
                                 {"c_attn.bias", "[3·E]"},
                                 {"c_proj.weight", "[E, E]"},
                                 {"c_proj.bias", "[E]"},
                                 {"bias", "", Need::kLeftOut},
                                 {"masked_bias", "", Need::kLeftOut}}},
          .split = "E",
          .convert = from_conv1d};
}

Layout nanogpt() {
  return {.about = {.name = "nanogpt",
                    .from = "nanoGPT: CausalSelfAttention, with or without bias",
                    .to = "CausalMultiheadAttention"},
          .source = {.tensors = {{"c_attn.weight", "[3·E, E]"},
                                 {"c_attn.bias", "[3·E]", Need::kWithBias},
                                 {"c_proj.weight", "[E, E]"},
                                 {"c_proj.bias", "[E]", Need::kWithBias},
                                 {"bias", "", Need::kLeftOut}}},
          .split = "E",
          .convert = from_linear};
}

}  // namespace attn::layouts
