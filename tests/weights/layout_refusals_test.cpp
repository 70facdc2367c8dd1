#include <ATen/ops/zeros.h>
#include <attn/weights.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "weights/layer_examples.h"

namespace attn {
namespace {

using testing::error_of;
using testing::example_of;
using testing::numbers;
using testing::tensor_of;
using testing::without;

std::string refusal(const NamedTensors& tensors, const std::string& layout, int64_t n_heads = 3) {
  return error_of([&] { convert_layout(tensors, layout, n_heads); });
}

::testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << '"' << text << "\" lacks \"" << part << '"';
}

/// The example of every layout with one tensor changed: the change must be refused under its name.
void expect_every_change_refused(const std::function<at::Tensor(const at::Tensor&)>& change) {
  for (const WeightLayout& layout : weight_layouts()) {
    const NamedTensors right = example_of(layout.name);
    for (std::size_t i = 0; i < right.size(); ++i) {
      NamedTensors wrong = right;
      wrong[i].second = change(wrong[i].second);
      const std::string error = refusal(wrong, layout.name);
      EXPECT_TRUE(says(error, "[convert_layout] tensors: expected ")) << layout.name;
      // Where a tensor sets a letter, a later one is the first to contradict it.
      if (i == 0 || right[i].first == "k_proj.weight") continue;
      EXPECT_TRUE(says(error, "expected " + right[i].first + ' ')) << layout.name;
    }
  }
}

TEST(LayoutRefusals, ListTheLayoutsBesideAnUnknownOne) {
  EXPECT_EQ(refusal({}, "gpt3"),
            "[convert_layout] layout: expected one of attention-learn-to-route, bert, gpt2, "
            "gpt-neox, llama, nanogpt, to-torch-multihead, torch-multihead, got \"gpt3\"");
}

TEST(LayoutRefusals, NameEveryTensorThatIsMissing) {
  for (const WeightLayout& layout : weight_layouts()) {
    const NamedTensors right = example_of(layout.name);
    for (const auto& [name, tensor] : right) {
      const std::string error = refusal(without(right, name), layout.name);
      EXPECT_TRUE(says(error, "expected " + name + " [")) << layout.name;
      EXPECT_TRUE(says(error, "got none")) << layout.name;
    }
  }
}

TEST(LayoutRefusals, NameEveryTensorOfAnotherRank) {
  expect_every_change_refused([](const at::Tensor& tensor) { return tensor.unsqueeze(0); });
}

TEST(LayoutRefusals, NameEveryTensorOfAnotherSize) {
  expect_every_change_refused(
      [](const at::Tensor& tensor) { return tensor.narrow(0, 0, tensor.size(0) - 1); });
  expect_every_change_refused(
      [](const at::Tensor& tensor) { return tensor.narrow(-1, 0, tensor.size(-1) - 1); });
}

TEST(LayoutRefusals, NameEveryTensorWithoutElements) {
  expect_every_change_refused([](const at::Tensor& tensor) { return tensor.narrow(0, 0, 0); });
}

TEST(LayoutRefusals, NameEveryTensorThatIsUndefined) {
  expect_every_change_refused([](const at::Tensor&) { return at::Tensor(); });
}

TEST(LayoutRefusals, NameEveryTensorOfAnotherDtypeDeviceOrLayout) {
  expect_every_change_refused([](const at::Tensor& tensor) { return tensor.to(at::kChar); });
  expect_every_change_refused([](const at::Tensor& tensor) { return tensor.to_sparse(); });
  for (const WeightLayout& layout : weight_layouts()) {
    NamedTensors mixed = example_of(layout.name);
    at::Tensor& last = mixed.back().second;
    last = last.to(at::kFloat);
    EXPECT_TRUE(says(refusal(mixed, layout.name), " of float64 (from ")) << layout.name;
    last = last.to(at::kDouble).to(at::kMeta);
    EXPECT_TRUE(says(refusal(mixed, layout.name), " on cpu (from ")) << layout.name;
  }
}

TEST(LayoutRefusals, NameWhatIsNotTheLayers) {
  for (const WeightLayout& layout : weight_layouts()) {
    NamedTensors more = example_of(layout.name);
    more.emplace_back("q_norm\n.weight", numbers({4}, 0));
    const std::string error = refusal(more, layout.name);
    EXPECT_TRUE(says(error, "expected the layout " + layout.name + " alone: ")) << layout.name;
    EXPECT_TRUE(says(error, "; got also \"q_norm\\x0a.weight\"")) << layout.name;
    more = example_of(layout.name);
    more.push_back(more.back());
    EXPECT_TRUE(says(refusal(more, layout.name),
                     "expected every name once, got " + more.back().first + " twice"))
        << layout.name;
  }
}

TEST(LayoutRefusals, OfTorchMultiheadNameTheVariants) {
  const NamedTensors right = example_of("torch-multihead");
  for (const char* name : {"bias_k", "bias_v"}) {
    NamedTensors with_bias = right;
    with_bias.emplace_back(name, numbers({1, 1, 12}, 0));
    EXPECT_TRUE(says(refusal(with_bias, "torch-multihead"), std::string("got also \"") + name));
  }
  NamedTensors separate = without(right, "in_proj_weight");
  for (const char* name : {"q_proj_weight", "k_proj_weight", "v_proj_weight"})
    separate.emplace_back(name, numbers({12, 12}, 0));
  EXPECT_TRUE(says(refusal(separate, "torch-multihead"),
                   "got also \"q_proj_weight\", \"k_proj_weight\", \"v_proj_weight\""));
}

TEST(LayoutRefusals, SayWhichShapesWereExpected) {
  NamedTensors gpt2 = example_of("gpt2");
  tensor_of(gpt2, "c_attn.bias") = numbers({35}, 0);
  EXPECT_EQ(refusal(gpt2, "gpt2"),
            "[convert_layout] tensors: expected c_attn.bias [3·E] with E = 12, got [35] (layout "
            "gpt2)");
  // The other way round is nanoGPT.
  EXPECT_TRUE(says(refusal(example_of("nanogpt"), "gpt2"),
                   "expected c_attn.weight [E, 3·E], got [36, 12]"));
  EXPECT_TRUE(says(refusal(example_of("gpt2"), "nanogpt"),
                   "expected c_attn.weight [3·E, E], got [12, 36]"));
}

TEST(LayoutRefusals, NameBiasesThatComeAlone) {
  for (const char* layout : {"torch-multihead", "nanogpt", "gpt-neox"}) {
    const NamedTensors right = example_of(layout);
    for (const auto& [name, tensor] : right) {
      if (!name.ends_with("bias")) continue;
      EXPECT_TRUE(says(refusal(without(right, name), layout), " beside ")) << layout << ' ' << name;
    }
  }
}

TEST(LayoutRefusals, HoldHeadsAgainstTheShapes) {
  const std::string where = "[convert_layout] n_heads: expected ";
  for (const WeightLayout& layout : weight_layouts()) {
    const NamedTensors right = example_of(layout.name);
    EXPECT_TRUE(says(refusal(right, layout.name, 5), where)) << layout.name;
    EXPECT_TRUE(says(refusal(right, layout.name, -1), where)) << layout.name;
    EXPECT_EQ(refusal(right, layout.name, 3), "");
    EXPECT_EQ(refusal(right, layout.name, 0).empty(), layout.name != "gpt-neox") << layout.name;
  }
  EXPECT_TRUE(says(refusal(example_of("gpt-neox"), "gpt-neox", 0),
                   where + "the number of heads, which the shapes of the layout gpt-neox do not "
                           "tell, got 0"));
  EXPECT_TRUE(says(refusal(example_of("attention-learn-to-route"), "attention-learn-to-route", 4),
                   where + "3 (from W_query) or 0, got 4"));
  // Two heads of 6 would need keys and values of 6.
  EXPECT_TRUE(
      says(refusal(example_of("llama"), "llama", 2),
           where + "heads whose size divides 4 (from k_proj.weight), got 2 heads of size 6"));
}

TEST(LayoutRefusals, HoldHeadSizesAgainstTheEmbedding) {
  NamedTensors narrow;
  for (const char* name : {"W_query", "W_key", "W_val"})
    narrow.emplace_back(name, numbers({3, 12, 5}, 0));
  narrow.emplace_back("W_out", numbers({3, 5, 12}, 0));
  EXPECT_TRUE(says(refusal(narrow, "attention-learn-to-route"),
                   "expected W_query [H, E, D] with H·D = E, got [3, 12, 5]"));
  NamedTensors uneven = example_of("llama");
  for (const char* name : {"k_proj.weight", "v_proj.weight"})
    tensor_of(uneven, name) = numbers({8, 12}, 0);
  EXPECT_TRUE(says(refusal(uneven, "llama"), "expected k_proj.weight [Hk·D, E] where Hk divides"));
}

}  // namespace
}  // namespace attn
