#include "weights/layouts/layout.h"

namespace attn::layouts {
namespace {

std::string heads_fill_the_embedding(const Sizes& sizes) {
  const int64_t heads = sizes.at("H"), embedding = sizes.at("E"), head = sizes.at("D");
  if (embedding % heads == 0 && embedding / heads == head) return "";
  return "expected W_query [H, E, D] with H·D = E, got [" + std::to_string(heads) + ", " +
         std::to_string(embedding) + ", " + std::to_string(head) + "]";
}

/// The rows of a linear map, head after head: x·W of each head becomes W'·x.
at::Tensor rows(const at::Tensor& weight) {
  return weight.transpose(1, 2).flatten(0, 1).contiguous();  // [H, E, D] → [H·D, E]
}

NamedTensors convert(const Checked& layer) {
  return {{"queryEncoder.weight", rows(layer["W_query"])},
          {"keyEncoder.weight", rows(layer["W_key"])},
          {"valueEncoder.weight", rows(layer["W_val"])},
          {"MHA.project_out.weight",
           layer["W_out"].flatten(0, 1).t().contiguous()}};  // [H, D, E] → [E, H·D]
}

}  // namespace

Layout attention_learn_to_route() {
  return {.about = {.name = "attention-learn-to-route",
                    .from = "wouterkool/attention-learn-to-route: MultiHeadAttention",
                    .to = "ProjectedMultiheadAttention"},
          .source = {.tensors = {{"W_query", "[H, E, D]"},
                                 {"W_key", "[H, E, D]"},
                                 {"W_val", "[H, E, D]"},
                                 {"W_out", "[H, D, E]"}},
                     .broken_rule = heads_fill_the_embedding},
          .split = "E",
          .convert = convert};
}

}  // namespace attn::layouts
