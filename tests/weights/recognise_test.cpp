#include "weights/recognise.h"

#include <ATen/ops/empty.h>
#include <attn/modules/causal_multihead_attention.h>
#include <attn/modules/einsum_multihead_attention.h>
#include <attn/modules/projected_multihead_attention.h>
#include <attn/modules/xavier_multihead_attention.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "weights/layer_examples.h"

namespace attn {
namespace {

using testing::example_of;
using testing::without;
using Lines = std::vector<std::string>;

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& item : module.named_parameters()) state.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) state.emplace_back(item.key(), item.value());
  return state;
}

NamedTensors under(const std::string& prefix, NamedTensors tensors) {
  for (auto& [name, tensor] : tensors) name = prefix + name;
  return tensors;
}

NamedTensors operator+(NamedTensors a, const NamedTensors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

NamedTensors shaped(const std::vector<std::pair<std::string, std::vector<int64_t>>>& shapes) {
  NamedTensors tensors;
  for (const auto& [name, shape] : shapes) tensors.emplace_back(name, at::empty(shape));
  return tensors;
}

/// "PREFIX MODULE(ARGUMENTS) LAYOUT" of every layer.
Lines found(const NamedTensors& tensors) {
  Lines lines;
  for (const RecognisedLayer& layer : recognise(tensors)) {
    lines.push_back(layer.prefix + ' ' + layer.title() +
                    (layer.layout.empty() ? "" : ' ' + layer.layout));
  }
  return lines;
}

TEST(Recognise, EveryModuleByItsOwnState) {
  const auto expect = [](const torch::nn::Module& module, const std::string& title) {
    for (const char* prefix : {"", "module._orig_mod.encoder.layers.0."}) {
      EXPECT_EQ(found(under(prefix, state_of(module))), Lines{std::string(prefix) + ' ' + title});
    }
  };
  expect(*XavierMultiheadAttention(6, 8, 4, 10, 2),
         "XavierMultiheadAttention(6, 8, 4, 10, n_heads ?)");
  expect(*EinsumMultiheadAttention(12, 4), "EinsumMultiheadAttention(12, num_heads 4)");
  expect(*EinsumMultiheadAttention(12, 1), "EinsumMultiheadAttention(12, num_heads 1)");
  expect(*PreprojectedMultiheadAttention(16), "PreprojectedMultiheadAttention(16, n_heads ?)");
  expect(*ProjectedMultiheadAttention(16), "ProjectedMultiheadAttention(16, n_heads ?)");
  expect(*CausalMultiheadAttention(12, 3), "CausalMultiheadAttention(12, num_heads ?)");
}

TEST(Recognise, EveryLayoutThatLeadsToAModuleOrAMap) {
  const std::pair<const char*, const char*> titles[] = {
      {"attention-learn-to-route", "ProjectedMultiheadAttention(12, n_heads 3)"},
      {"bert", "torch::nn::MultiheadAttention(12, num_heads ?)"},
      {"gpt2", "CausalMultiheadAttention(12, num_heads ?)"},
      {"gpt-neox", "gpt-neox(E 12, n_heads ?)"},
      {"llama", "llama(E 12, H·D 12, Hk·D 4)"},
      {"nanogpt", "CausalMultiheadAttention(12, num_heads ?)"},
      {"torch-multihead", "CausalMultiheadAttention(12, num_heads ?)"}};
  std::size_t leading = 0;
  for (const WeightLayout& layout : weight_layouts())
    leading += layout.from.starts_with("Causal") ? 0 : 1;
  EXPECT_EQ(leading, std::size(titles));
  for (const auto& [layout, title] : titles) {
    EXPECT_EQ(found(under("h.0.attn.", example_of(layout))),
              Lines{std::string("h.0.attn. ") + title + ' ' + layout});
  }
  // What to-torch-multihead reads is a module's own state.
  EXPECT_EQ(found(example_of("to-torch-multihead")),
            Lines{" CausalMultiheadAttention(12, num_heads ?)"});
}

TEST(Recognise, TheEncoderOfRlorAndItsGlimpse) {
  NamedTensors file;
  const std::string base = "backbone.encoder.layers.";
  for (const char* layer : {"0", "1"}) {
    const std::string prefix = base + layer;
    file = file + under(prefix + ".0.module.", state_of(*ProjectedMultiheadAttention(128))) +
           shaped({{prefix + ".1.normalizer.weight", {128}},
                   {prefix + ".1.normalizer.num_batches_tracked", {}},
                   {prefix + ".2.module.0.weight", {512, 128}}});
  }
  file = file + shaped({{"backbone.decoder.project_node_embeddings.weight", {384, 128}},
                        {"backbone.decoder.project_fixed_context.weight", {128, 128}},
                        {"backbone.decoder.glimpse.project_out.weight", {128, 128}},
                        {"critic.mlp.0.weight", {128, 128}}});
  EXPECT_EQ(found(file),
            (Lines{base + "0.0.module. ProjectedMultiheadAttention(128, n_heads ?)",
                   base + "1.0.module. ProjectedMultiheadAttention(128, n_heads ?)",
                   "backbone.decoder.glimpse. PreprojectedMultiheadAttention(128, n_heads ?)"}));
}

TEST(Recognise, AttentionLearnToRouteAndNotItsBareProjection) {
  const NamedTensors file =
      under("model.embedder.layers.0.0.module.", example_of("attention-learn-to-route")) +
      shaped({{"model.project_node_embeddings.weight", {384, 128}},
              {"model.project_out.weight", {128, 128}}});
  EXPECT_EQ(found(file), Lines{"model.embedder.layers.0.0.module. ProjectedMultiheadAttention(12, "
                               "n_heads 3) attention-learn-to-route"});
}

TEST(Recognise, LayersInTheOrderOfTheFile) {
  const NamedTensors file = under("b.", example_of("gpt2")) +
                            under("a.", state_of(*CausalMultiheadAttention(12, 3))) +
                            under("c.", state_of(*XavierMultiheadAttention(6, 8, 4, 10, 2)));
  EXPECT_EQ(found(file), (Lines{"b. CausalMultiheadAttention(12, num_heads ?) gpt2",
                                "a. CausalMultiheadAttention(12, num_heads ?)",
                                "c. XavierMultiheadAttention(6, 8, 4, 10, n_heads ?)"}));
}

TEST(Recognise, LayoutsBesideTheirBuffersAlone) {
  const NamedTensors gpt2 = under("h.0.attn.", example_of("gpt2"));
  const Lines expected = {"h.0.attn. CausalMultiheadAttention(12, num_heads ?) gpt2"};
  EXPECT_EQ(found(gpt2 + shaped({{"h.0.attn.bias", {1, 1, 7, 7}}, {"h.0.ln_1.weight", {12}}})),
            expected);
  EXPECT_EQ(found(gpt2 + shaped({{"h.0.attn.q_norm.weight", {4}}})), Lines{});
  EXPECT_EQ(found(gpt2 + shaped({{"h.0.attn.c_attn.lora_A.weight", {2, 12}}})), Lines{});
  const NamedTensors bert = under("layer.0.attention.", example_of("bert"));
  EXPECT_EQ(found(bert + shaped({{"layer.0.attention.output.LayerNorm.weight", {12}},
                                 {"layer.0.output.dense.weight", {12, 48}}})),
            Lines{"layer.0.attention. torch::nn::MultiheadAttention(12, num_heads ?) bert"});
}

TEST(Recognise, NothingWhereANameOrAShapeIsAnother) {
  // What is left of a ProjectedMultiheadAttention is the module inside it.
  const auto holds_nothing_else = [](const NamedTensors& wrong) {
    const Lines left = found(wrong);
    return left.empty() || left[0].ends_with("MHA. PreprojectedMultiheadAttention(16, n_heads ?)");
  };
  std::vector<NamedTensors> layers = {state_of(*XavierMultiheadAttention(6, 8, 4, 10, 2)),
                                      state_of(*EinsumMultiheadAttention(12, 4)),
                                      state_of(*CausalMultiheadAttention(12, 3)),
                                      state_of(*ProjectedMultiheadAttention(16))};
  for (const WeightLayout& layout : weight_layouts()) layers.push_back(example_of(layout.name));
  for (const NamedTensors& right : layers) {
    ASSERT_EQ(found(right).size(), 1);
    for (std::size_t i = 0; i < right.size(); ++i) {
      NamedTensors wrong = right;
      wrong[i].second = wrong[i].second.unsqueeze(0);
      EXPECT_TRUE(holds_nothing_else(wrong)) << right[i].first;
      wrong[i].second = right[i].second.to(at::kLong);
      EXPECT_TRUE(holds_nothing_else(wrong)) << right[i].first;
      wrong = right;
      wrong[i].first = "x" + wrong[i].first;
      EXPECT_TRUE(holds_nothing_else(wrong)) << right[i].first;
    }
  }
}

TEST(Recognise, NothingInWhatOnlyLooksLikeIt) {
  EXPECT_EQ(found({}), Lines{});
  EXPECT_EQ(found(shaped({{"", {}}, {".", {3}}, {"weight", {12, 12}}})), Lines{});
  // A prefix ends at a dot.
  EXPECT_EQ(found(under("my", example_of("gpt2"))), Lines{});
  // Heads of 5 features do not fill 12.
  EXPECT_EQ(found(shaped({{"values.weight", {5, 5}},
                          {"keys.weight", {5, 5}},
                          {"queries.weight", {5, 5}},
                          {"fc_out.weight", {12, 12}},
                          {"fc_out.bias", {12}}})),
            Lines{});
}

TEST(Recognise, CodeThatLoadsALayer) {
  const auto code = [](const NamedTensors& tensors) {
    return recognise(tensors).at(0).code("a b.pt");
  };
  EXPECT_EQ(
      code(under("backbone.encoder.layers.0.0.module.",
                 state_of(*ProjectedMultiheadAttention(128)))),
      "attn::ProjectedMultiheadAttention layer(128);  // n_heads ?: not in the file\n"
      "attn::load_weights(layer, \"a b.pt\",\n"
      "                   attn::LoadOptions().prefix(\"backbone.encoder.layers.0.0.module.\"));");
  EXPECT_EQ(code(state_of(*EinsumMultiheadAttention(12, 4))),
            "attn::EinsumMultiheadAttention layer(12, 4);\n"
            "attn::load_weights(layer, \"a b.pt\");");
  EXPECT_EQ(
      code(state_of(*CausalMultiheadAttention(12, 4)) + shaped({{"norm.weight", {12}}})),
      "attn::CausalMultiheadAttention layer(12, num_heads);  // num_heads ?: not in the file\n"
      "attn::load_weights(layer, \"a b.pt\", attn::LoadOptions().strict(false));");
  EXPECT_EQ(code(under("m.", example_of("attention-learn-to-route"))),
            "attn::ProjectedMultiheadAttention "
            "layer(attn::ProjectedMultiheadAttentionOptions(12).n_heads(3));\n"
            "attn::load_weights(layer, \"a b.pt\",\n"
            "                   "
            "attn::LoadOptions().prefix(\"m.\").layout(\"attention-learn-to-route\"));");
  EXPECT_EQ(code(under("m.", example_of("gpt-neox"))),
            "const attn::NamedTensors weights = attn::convert_layout(\n"
            "    attn::read_weights(\"a b.pt\", attn::LoadOptions().prefix(\"m.\")), \"gpt-neox\", "
            "n_heads);  // n_heads ?: not in the file");
  EXPECT_EQ(code(example_of("llama")),
            "const attn::NamedTensors weights = attn::convert_layout(\n"
            "    attn::read_weights(\"a b.pt\"), \"llama\");");
}

TEST(Recognise, CodeThatQuotesWhatAFileNames) {
  const auto layer = recognise(under("a\"\n\\\xC3\xA9.", example_of("gpt2"))).at(0);
  const std::string code = layer.code("\x7F");
  EXPECT_NE(code.find("load_weights(layer, \"\\177\""), std::string::npos) << code;
  EXPECT_NE(code.find(".prefix(\"a\\\"\\012\\\\\\303\\251.\")"), std::string::npos) << code;
}

TEST(Recognise, AMillionNamesInSeconds) {
  NamedTensors file;
  const at::Tensor square = at::empty({12, 12});
  for (int i = 0; i < 500'000; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + '.';
    file.emplace_back(prefix + "project_out.weight", square);
    file.emplace_back(prefix + "q_proj.weight", square);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(recognise(file).size(), 0);
  // One second here; looking at every name for every prefix would take hours.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace attn
