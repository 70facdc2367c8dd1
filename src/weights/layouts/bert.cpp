#include <ATen/ops/cat.h>

#include "weights/layouts/layout.h"

namespace attn::layouts {
namespace {

NamedTensors convert(const Checked& layer) {
  const auto joined = [&](std::string_view kind) {
    const auto of = [&](std::string_view map) {
      return layer["self." + std::string(map) + '.' + std::string(kind)];
    };
    return at::cat({of("query"), of("key"), of("value")});
  };
  return {{"in_proj_weight", joined("weight")},  // [3·E, E]
          {"in_proj_bias", joined("bias")},      // [3·E]
          {"out_proj.weight", layer["output.dense.weight"]},
          {"out_proj.bias", layer["output.dense.bias"]}};
}

}  // namespace

Layout bert() {
  return {.about = {.name = "bert",
                    .from = "Hugging Face BERT and RoBERTa: attention",
                    .to = "torch.nn.MultiheadAttention"},
          .source = {.tensors = {{"self.query.weight", "[E, E]"},
                                 {"self.query.bias", "[E]"},
                                 {"self.key.weight", "[E, E]"},
                                 {"self.key.bias", "[E]"},
                                 {"self.value.weight", "[E, E]"},
                                 {"self.value.bias", "[E]"},
                                 {"output.dense.weight", "[E, E]"},
                                 {"output.dense.bias", "[E]"},
                                 {"output.LayerNorm.weight", "", Need::kLeftOut},
                                 {"output.LayerNorm.bias", "", Need::kLeftOut},
                                 {"output.LayerNorm.gamma", "", Need::kLeftOut},
                                 {"output.LayerNorm.beta", "", Need::kLeftOut}}},
          .split = "E",
          .convert = convert,
          .optional_prefix = "attention."};
}

}  // namespace attn::layouts
