#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <attn/modules/causal_multihead_attention.h>
#include <attn/modules/projected_multihead_attention.h>
#include <attn/weights.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>

#include <tuple>

#include "weights/layer_examples.h"

namespace attn {
namespace {

using testing::example_of;
using testing::filled;
using testing::is_near;
using testing::numbers;
using testing::plain_head;
using testing::plain_heads;
using testing::tensor_of;
using testing::without;

/// float64, sums of up to 36 products below 20 in five steps (projection, logits, weights, values,
/// projection): fewer than 200 roundings of 2^-53 each, relative to numbers below 20 · 36. Nearly
/// all cancel; 1e-12 is a hundredth of what a wrong row would change.
constexpr double kTolerance = 1e-12;

const at::Tensor kInput = numbers({5, 12}, 9);  // [L, E]

/// What the module makes of the input, as a batch of one.
at::Tensor output_of(CausalMultiheadAttention module) {
  return module->forward(kInput.unsqueeze(0)).squeeze(0);
}

TEST(Layouts, AttentionLearnToRouteComputesWhatItsHeadsDo) {
  NamedTensors weights = example_of("attention-learn-to-route");
  at::Tensor expected = at::zeros({5, 12}, at::kDouble);
  for (int64_t h = 0; h < 3; ++h) {
    const auto of = [&](const char* name) { return tensor_of(weights, name)[h]; };
    expected += plain_head(kInput.matmul(of("W_query")), kInput.matmul(of("W_key")),
                           kInput.matmul(of("W_val")), false)
                    .matmul(of("W_out"));
  }
  auto module =
      filled(ProjectedMultiheadAttention(ProjectedMultiheadAttentionOptions(12).n_heads(3)),
             convert_layout(weights, "attention-learn-to-route"));
  EXPECT_TRUE(is_near(module->forward(kInput.unsqueeze(0)).squeeze(0), expected, kTolerance));
}

TEST(Layouts, TorchMultiheadComputesWhatTorchDoesUnderACausalMask) {
  const NamedTensors weights = example_of("torch-multihead");
  auto theirs = filled(torch::nn::MultiheadAttention(12, 3), weights);
  const at::Tensor x = kInput.unsqueeze(1);  // [L, B, E]
  // LibTorch's module adds its mask, whatever its dtype.
  const at::Tensor blocked = at::zeros({5, 5}, at::kDouble)
                                 .masked_fill(testing::lower_triangle(5, 5).logical_not(),
                                              -std::numeric_limits<double>::infinity());
  const auto [expected, unused] = theirs->forward(x, x, x, {}, false, blocked);
  const auto ours =
      filled(CausalMultiheadAttention(12, 3), convert_layout(weights, "torch-multihead"));
  EXPECT_TRUE(is_near(output_of(ours), expected.squeeze(1), kTolerance));
}

TEST(Layouts, MissingBiasesComputeAsNone) {
  for (const auto& [layout, in, out] :
       {std::tuple("torch-multihead", "in_proj_weight", "out_proj.weight"),
        std::tuple("nanogpt", "c_attn.weight", "c_proj.weight")}) {
    SCOPED_TRACE(layout);
    NamedTensors weights = without(example_of(layout), "bias");
    const std::vector<at::Tensor> qkv = kInput.matmul(tensor_of(weights, in).t()).chunk(3, 1);
    const at::Tensor expected =
        plain_heads(qkv[0], qkv[1], qkv[2], 3, true).matmul(tensor_of(weights, out).t());
    const auto ours = filled(CausalMultiheadAttention(12, 3), convert_layout(weights, layout));
    EXPECT_TRUE(is_near(output_of(ours), expected, kTolerance));
  }
}

TEST(Layouts, TorchMultiheadGoesThereAndBackUnchanged) {
  const NamedTensors weights = example_of("torch-multihead");
  const NamedTensors back =
      convert_layout(convert_layout(weights, "torch-multihead"), "to-torch-multihead");
  ASSERT_EQ(back.size(), weights.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].first, weights[i].first);
    EXPECT_TRUE(at::equal(back[i].second, weights[i].second));
  }
}

TEST(Layouts, Gpt2ComputesWithMapsThatMultiplyFromTheRight) {
  NamedTensors weights = example_of("gpt2");
  const auto of = [&](const char* name) { return tensor_of(weights, name); };
  const std::vector<at::Tensor> qkv =
      kInput.matmul(of("c_attn.weight")).add(of("c_attn.bias")).chunk(3, 1);
  const at::Tensor expected = plain_heads(qkv[0], qkv[1], qkv[2], 3, true)
                                  .matmul(of("c_proj.weight"))
                                  .add(of("c_proj.bias"));
  const auto ours = filled(CausalMultiheadAttention(12, 3), convert_layout(weights, "gpt2"));
  EXPECT_TRUE(is_near(output_of(ours), expected, kTolerance));
}

TEST(Layouts, NanoGptIsGpt2Transposed) {
  NamedTensors gpt2 = example_of("gpt2"), nanogpt = gpt2;
  for (const char* name : {"c_attn.weight", "c_proj.weight"})
    tensor_of(nanogpt, name) = tensor_of(gpt2, name).t().clone();
  const NamedTensors one = convert_layout(gpt2, "gpt2"), other = convert_layout(nanogpt, "nanogpt");
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].first, other[i].first);
    EXPECT_TRUE(at::equal(one[i].second, other[i].second)) << one[i].first;
  }
}

TEST(Layouts, BertComputesInTorchMultihead) {
  NamedTensors weights = example_of("bert");
  const auto map = [&](const std::string& name, const at::Tensor& x) {
    return x.matmul(tensor_of(weights, name + ".weight").t())
        .add(tensor_of(weights, name + ".bias"));
  };
  const at::Tensor expected =
      map("output.dense", plain_heads(map("self.query", kInput), map("self.key", kInput),
                                      map("self.value", kInput), 3, false));
  auto theirs = filled(torch::nn::MultiheadAttention(12, 3), convert_layout(weights, "bert"));
  const at::Tensor x = kInput.unsqueeze(1);  // [L, B, E]
  const auto [output, unused] = theirs->forward(x, x, x, {}, false);
  EXPECT_TRUE(is_near(output.squeeze(1), expected, kTolerance));
}

TEST(Layouts, BertMayBeginWithAttention) {
  const NamedTensors plain = example_of("bert");
  NamedTensors prefixed = plain;
  for (auto& [name, tensor] : prefixed) name = "attention." + name;
  const NamedTensors one = convert_layout(plain, "bert"), other = convert_layout(prefixed, "bert");
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(at::equal(one[i].second, other[i].second)) << one[i].first;
}

TEST(Layouts, GptNeoxComputesHeadByHead) {
  NamedTensors weights = example_of("gpt-neox");
  const auto of = [&](const char* name) { return tensor_of(weights, name); };
  // Every head has its query, key and value side by side: 4 features each.
  const at::Tensor qkv =
      kInput.matmul(of("query_key_value.weight").t()).add(of("query_key_value.bias"));
  std::vector<at::Tensor> heads;
  for (int64_t h = 0; h < 3; ++h) {
    const auto part = [&](int64_t which) { return qkv.narrow(1, h * 12 + which * 4, 4); };
    heads.push_back(plain_head(part(0), part(1), part(2), true));
  }
  const at::Tensor expected =
      at::cat(heads, 1).matmul(of("dense.weight").t()).add(of("dense.bias"));
  const auto ours = filled(CausalMultiheadAttention(12, 3), convert_layout(weights, "gpt-neox", 3));
  EXPECT_TRUE(is_near(output_of(ours), expected, kTolerance));
}

TEST(Layouts, LlamaKeepsEveryTensorUnderAnotherName) {
  NamedTensors weights = example_of("llama");
  const NamedTensors map = convert_layout(weights, "llama");
  const std::pair<const char*, const char*> names[] = {{"q_proj_weight", "q_proj.weight"},
                                                       {"k_proj_weight", "k_proj.weight"},
                                                       {"v_proj_weight", "v_proj.weight"},
                                                       {"out_proj.weight", "o_proj.weight"}};
  ASSERT_EQ(map.size(), std::size(names));
  for (std::size_t i = 0; i < map.size(); ++i) {
    EXPECT_EQ(map[i].first, names[i].first);
    EXPECT_TRUE(at::equal(map[i].second, tensor_of(weights, names[i].second)));
  }
}

TEST(Layouts, LlamaJoinsTheBiasesOfQwen) {
  NamedTensors weights = example_of("llama");
  weights.emplace_back("q_proj.bias", numbers({12}, 20));
  weights.emplace_back("k_proj.bias", numbers({4}, 21));
  weights.emplace_back("v_proj.bias", numbers({4}, 22));
  NamedTensors map = convert_layout(weights, "llama");
  EXPECT_EQ(map.size(), 5);
  const at::Tensor bias = tensor_of(map, "in_proj_bias");
  EXPECT_TRUE(at::equal(bias.narrow(0, 0, 12), tensor_of(weights, "q_proj.bias")));
  EXPECT_TRUE(at::equal(bias.narrow(0, 12, 4), tensor_of(weights, "k_proj.bias")));
  EXPECT_TRUE(at::equal(bias.narrow(0, 16, 4), tensor_of(weights, "v_proj.bias")));

  weights.emplace_back("o_proj.bias", numbers({12}, 23));
  map = convert_layout(weights, "llama");
  EXPECT_TRUE(at::equal(tensor_of(map, "out_proj.bias"), tensor_of(weights, "o_proj.bias")));
}

TEST(Layouts, BuffersAndLayerNormsAreLeftOut) {
  const at::Tensor triangle = testing::lower_triangle(7, 7).view({1, 1, 7, 7});
  const std::tuple<const char*, const char*, at::Tensor> extras[] = {
      {"gpt2", "bias", triangle},
      {"gpt2", "masked_bias", numbers({}, 0)},
      {"nanogpt", "bias", triangle},
      {"gpt-neox", "bias", triangle},
      {"gpt-neox", "masked_bias", numbers({}, 0)},
      {"gpt-neox", "rotary_emb.inv_freq", numbers({1}, 0)},
      {"llama", "rotary_emb.inv_freq", numbers({2}, 0)},
      {"bert", "output.LayerNorm.weight", numbers({12}, 0)},
      {"bert", "output.LayerNorm.bias", numbers({12}, 0)},
      {"bert", "output.LayerNorm.gamma", numbers({12}, 0)},
      {"bert", "output.LayerNorm.beta", numbers({12}, 0)}};
  for (const auto& [layout, name, tensor] : extras) {
    NamedTensors weights = example_of(layout);
    const NamedTensors expected = convert_layout(weights, layout, 3);
    weights.emplace_back(name, tensor);
    const NamedTensors got = convert_layout(weights, layout, 3);
    ASSERT_EQ(got.size(), expected.size()) << layout << ' ' << name;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].first, expected[i].first);
      EXPECT_TRUE(at::equal(got[i].second, expected[i].second)) << layout << ' ' << name;
    }
  }
}

TEST(Layouts, KeepTheDtypeAndGiveContiguousTensorsWithoutGradient) {
  for (const WeightLayout& layout : weight_layouts()) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      NamedTensors weights = example_of(layout.name);
      for (auto& [name, tensor] : weights) tensor = tensor.to(dtype).requires_grad_();
      for (const auto& [name, tensor] : convert_layout(weights, layout.name, 3)) {
        EXPECT_EQ(tensor.scalar_type(), dtype) << layout.name << ' ' << name;
        EXPECT_TRUE(tensor.is_contiguous()) << layout.name << ' ' << name;
        EXPECT_FALSE(tensor.requires_grad()) << layout.name << ' ' << name;
      }
    }
  }
}

}  // namespace
}  // namespace attn
