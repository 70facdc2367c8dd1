#include "weights/known_layers.h"

#include <algorithm>

#include "weights/layouts/layout.h"

namespace attn {
namespace {

using layouts::Sizes;

std::string heads_are_whole(const Sizes& sizes) {
  return sizes.at("E") % sizes.at("D") == 0
             ? ""
             : "expected fc_out.weight [E, E] with E a multiple of D";
}

// The modules. The weights stand beside these and do not know them; a test compares the two.

KnownLayer xavier() {
  return {.module = "attn::XavierMultiheadAttention",
          .arguments = {{"in_dim", "in_dim"},
                        {"qk_dim", "qk_dim"},
                        {"v_dim", "v_dim"},
                        {"out_dim", "out_dim"},
                        {"n_heads"}},
          .source = {.tensors = {{"Q.weight", "[qk_dim, in_dim]"},
                                 {"K.weight", "[qk_dim, in_dim]"},
                                 {"V.weight", "[v_dim, in_dim]"},
                                 {"Wo.weight", "[out_dim, v_dim]"},
                                 {"Wo.bias", "[out_dim]"}}},
          .alone = false};
}

KnownLayer einsum() {
  return {.module = "attn::EinsumMultiheadAttention",
          .arguments = {{"embed_size", "E"}, {"num_heads", "E", "D"}},
          .source = {.tensors = {{"values.weight", "[D, D]"},
                                 {"keys.weight", "[D, D]"},
                                 {"queries.weight", "[D, D]"},
                                 {"fc_out.weight", "[E, E]"},
                                 {"fc_out.bias", "[E]"}},
                     .broken_rule = heads_are_whole},
          .alone = false};
}

KnownLayer projected() {
  return {.module = "attn::ProjectedMultiheadAttention",
          .arguments = {{"embedding_dim", "E"}, {.name = "n_heads", .is_option = true}},
          .source = {.tensors = {{"queryEncoder.weight", "[E, E]"},
                                 {"keyEncoder.weight", "[E, E]"},
                                 {"valueEncoder.weight", "[E, E]"},
                                 {"MHA.project_out.weight", "[E, E]"}}},
          .alone = false};
}

KnownLayer preprojected() {
  return {.module = "attn::PreprojectedMultiheadAttention",
          .arguments = {{"embedding_dim", "E"}, {.name = "n_heads", .is_option = true}},
          .source = {.tensors = {{"project_out.weight", "[E, E]"}}}};
}

KnownLayer causal() {
  return {.module = "attn::CausalMultiheadAttention",
          .arguments = {{"hidden_size", "E"}, {"num_heads"}},
          .source = {.tensors = {{"W_QKV.weight", "[3·E, E]"},
                                 {"W_QKV.bias", "[3·E]"},
                                 {"W_O.weight", "[E, E]"},
                                 {"W_O.bias", "[E]"}}},
          .alone = false};
}

/// The weights of a layout, taken by a module.
KnownLayer by(const layouts::Layout& layout, std::string_view module,
              std::vector<KnownArgument> arguments, std::string_view note = "") {
  return {.module = module,
          .arguments = std::move(arguments),
          .source = layout.source,
          .layout = layout.about.name,
          .needs_heads = layout.needs_heads,
          .note = note};
}

KnownLayer by_causal(const layouts::Layout& layout, std::string_view note = "") {
  return by(layout, "attn::CausalMultiheadAttention", {{"hidden_size", "E"}, {"num_heads"}}, note);
}

constexpr std::string_view kRotates = "its caller rotates queries and keys (RoPE)";

const layouts::Layout& layout(std::string_view name) {
  return *std::ranges::find(layouts::all(), name,
                            [](const layouts::Layout& each) { return each.about.name; });
}

}  // namespace

const std::vector<KnownLayer>& known_layers() {
  static const std::vector<KnownLayer> layers = {
      xavier(),
      einsum(),
      projected(),
      preprojected(),
      causal(),
      by(layout("attention-learn-to-route"), "attn::ProjectedMultiheadAttention",
         {{"embedding_dim", "E"}, {.name = "n_heads", .size = "H", .is_option = true}}),
      by_causal(
          layout("torch-multihead"),
          "where its mask was causal; torch::nn::MultiheadAttention takes these names as they are"),
      by(layout("bert"), "torch::nn::MultiheadAttention", {{"embed_dim", "E"}, {"num_heads"}}),
      by_causal(layout("gpt2")),
      by_causal(layout("nanogpt")),
      by(layout("llama"), "", {{"E", "E"}, {"H·D", "H·D"}, {"Hk·D", "Hk·D"}}, kRotates),
      by(layout("gpt-neox"), "", {{"E", "E"}, {"n_heads"}}, kRotates)};
  return layers;
}

}  // namespace attn
