// The documents' own numbers: the results of their classes in float64 (tests/golden/documents.json)
// and the examples that they print.

#include <ATen/ops/allclose.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <attn/attn.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::fill_with_waves;
using testing::is_near;
using testing::lower_triangle;
using testing::waves;

/// Values of order 1 by sums of at most 8 terms in float64, so that another order of summation
/// explains some 1e-15; printed with 17 digits.
constexpr double kFloat64Bound = 1e-13;
/// Initial parameters are float32 of order 1; machines round the normal distribution's logarithm
/// and cosine differently by a few ulp of 1.2e-7.
constexpr double kInitBound = 1e-6;

/// One tensor of documents.json; null stands for NaN, "-inf" for −∞.
at::Tensor expected(const std::string& name) {
  static const auto file =
      nlohmann::json::parse(std::ifstream(std::string(ATTN_GOLDEN) + "/documents.json"));
  std::vector<double> values;
  for (const auto& value : file.at(name).at("data")) {
    values.push_back(value.is_null()     ? NAN
                     : value.is_string() ? -std::numeric_limits<double>::infinity()
                                         : value.get<double>());
  }
  return at::tensor(values, at::kDouble)
      .reshape(file.at(name).at("shape").get<std::vector<int64_t>>());
}

struct DocumentsTest : ::testing::Test {
  at::Tensor q = waves({2, 3, 6}, 0.7, 0.1).requires_grad_();
  at::Tensor k = waves({2, 5, 6}, 0.9, 0.4).requires_grad_();
  at::Tensor v = waves({2, 5, 6}, 1.3, 0.8).requires_grad_();
  at::Tensor tril = lower_triangle(3, 5, 1).expand({2, 3, 5}).contiguous();
  at::Tensor row_masked = tril.clone();

  DocumentsTest() { row_masked[1][2].fill_(false); }

  void expect(const std::string& name, const at::Tensor& actual, double bound = kFloat64Bound) {
    EXPECT_TRUE(is_near(actual, expected(name), bound)) << name;
  }

  /// Gradients of the parameters, and of inputs by name, for the documents' grad_out.
  void expect_gradients(const std::string& document, const at::Tensor& output,
                        const torch::nn::Module& module,
                        const std::vector<std::pair<std::string, at::Tensor>>& inputs) {
    output.backward(waves(output.sizes(), 0.3, 0.6));
    for (const auto& [name, tensor] : inputs) expect(document + "_" + name, tensor.grad());
    for (const auto& item : module.named_parameters()) {
      expect(document + "_d_" + item.key(), item.value().grad());
    }
  }

  template <class Holder>
  void expect_initial(const std::string& document, const Holder& module) {
    for (const auto& item : module->named_parameters()) {
      expect(document + "_init_seed0_" + item.key(), item.value(), kInitBound);
    }
  }
};

template <class Holder>
Holder in_float64(Holder module) {
  module->to(at::kDouble);
  return fill_with_waves(module);
}

TEST_F(DocumentsTest, XavierGivesItsOutputsAndWeights) {
  auto module = in_float64(XavierMultiheadAttention(6, 8, 4, 7, 2));
  for (const auto& [name, mask] : {std::pair{"nomask", at::Tensor()}, std::pair{"tril1", tril},
                                   std::pair{"rowmasked", row_masked}}) {
    const auto [out, attn] = module(q, k, v, mask, true);
    expect(std::string("000_") + name + "_out", out);
    expect(std::string("000_") + name + "_attn", attn);
  }
}

TEST_F(DocumentsTest, XavierGivesItsGradients) {
  auto module = in_float64(XavierMultiheadAttention(6, 8, 4, 7, 2));
  expect_gradients("000_tril1", std::get<0>(module(q, k, v, tril)), *module,
                   {{"dq", q}, {"dk", k}, {"dv", v}});
}

TEST_F(DocumentsTest, EinsumGivesItsOutputs) {
  auto module = in_float64(EinsumMultiheadAttention(6, 2));
  expect("001_nomask_out", module(v, k, q));
  expect("001_tril1_out", module(v, k, q, tril.unsqueeze(1)));
  expect("001_rowmasked_out", module(v, k, q, row_masked.unsqueeze(1)));
}

TEST_F(DocumentsTest, EinsumGivesItsGradients) {
  auto module = in_float64(EinsumMultiheadAttention(6, 2));
  expect_gradients("001_tril1", module(v, k, q, tril.unsqueeze(1)), *module,
                   {{"dq", q}, {"dk", k}, {"dv", v}});
}

TEST_F(DocumentsTest, ProjectedGivesItsOutputs) {
  auto module =
      in_float64(ProjectedMultiheadAttention(ProjectedMultiheadAttentionOptions(6).n_heads(2)));
  expect("002P_nomask_out", module(q, k));
  expect("002P_tril1_out", module(q, k, tril.logical_not()));
  expect("002P_rowmasked_out", module(q, k, row_masked.logical_not()));
  expect("002P_self_out", module(q));
}

TEST_F(DocumentsTest, ProjectedGivesItsGradients) {
  auto module =
      in_float64(ProjectedMultiheadAttention(ProjectedMultiheadAttentionOptions(6).n_heads(2)));
  expect_gradients("002P_tril1", module(q, k, tril.logical_not()), *module, {{"dq", q}, {"dk", k}});
}

TEST_F(DocumentsTest, PreprojectedGivesItsOutput) {
  auto module = in_float64(
      PreprojectedMultiheadAttention(PreprojectedMultiheadAttentionOptions(6).n_heads(2)));
  expect("002M_tril1_out", module(q, k, v, tril.logical_not()));
}

TEST_F(DocumentsTest, ScoreGivesItsLogits) {
  AttentionScore clipped(AttentionScoreOptions().use_tanh(true).C(10));
  expect("002S_clip_logits", clipped(4 * q, k, tril.logical_not()));
  expect("002S_plain_logits", AttentionScore()(4 * q, k, tril.logical_not()));
}

TEST_F(DocumentsTest, CausalGivesItsOutputAndGradients) {
  auto module = in_float64(CausalMultiheadAttention(6, 3));
  const at::Tensor x = waves({2, 5, 6}, 0.5, 0.3).requires_grad_();
  const at::Tensor out = module(x);
  expect("004_out", out);
  expect_gradients("004", out, *module, {{"dx", x}});
}

TEST_F(DocumentsTest, CausalFunctionIsTopLeftAligned) {
  const auto run = [](int64_t queries, int64_t keys) {
    return multihead_masked_attention(waves({1, queries, 6}, 0.7, 0.1),
                                      waves({1, keys, 6}, 0.9, 0.4), waves({1, keys, 6}, 1.3, 0.8),
                                      2);
  };
  expect("004_fn_q2_k5", run(2, 5));
  expect("004_fn_q5_k2", run(5, 2));
}

TEST_F(DocumentsTest, ModulesStartWithPythonsParameters) {
  torch::manual_seed(0);
  expect_initial("000", XavierMultiheadAttention(6, 8, 4, 7, 2));
  torch::manual_seed(0);
  expect_initial("001", EinsumMultiheadAttention(8, 2));
  torch::manual_seed(0);
  expect_initial("002P",
                 ProjectedMultiheadAttention(ProjectedMultiheadAttentionOptions(8).n_heads(2)));
  torch::manual_seed(0);
  expect_initial("004", CausalMultiheadAttention(8, 2));
}

/// The example of document 004, with the bounds of its own assertions: 1 % and 0.001.
struct PrintedExample : ::testing::Test {
  at::Tensor Q = at::tensor({7.f, 4.f, 1.f, 6.f, 3.f, 0.f, 5.f, 2.f, 1.f}).reshape({1, 3, 3});
  at::Tensor K = at::tensor({1.f, 3.f, 5.f, 2.f, 4.f, 6.f}).reshape({1, 2, 3});
  at::Tensor V = at::tensor({1.f, 0.f, 1.f, 0.f, 1.f, 0.f}).reshape({1, 2, 3});
  at::Tensor unmasked = at::tensor({9.7880e-04f, 9.9902e-01f, 9.7880e-04f, 5.5073e-03f, 9.9449e-01f,
                                    5.5073e-03f, 9.7682e-03f, 9.9023e-01f, 9.7682e-03f})
                            .reshape({1, 3, 3});
  at::Tensor masked = unmasked.clone();

  PrintedExample() { masked[0][0].copy_(at::tensor({1.f, 0.f, 1.f})); }
};

TEST_F(PrintedExample, OfSingleHeadAttention) {
  EXPECT_TRUE(at::allclose(single_head_attention(Q, K, V), unmasked, 0.01, 0.001));
  // The printed digits hold to half a unit of the last: 5e-6 at 0.99902.
  EXPECT_TRUE(is_near(single_head_attention(Q, K, V), unmasked, 6e-6));
}

TEST_F(PrintedExample, OfTheMaskedFunctions) {
  EXPECT_TRUE(is_near(single_head_masked_attention(Q, K, V), masked, 6e-6));
  EXPECT_TRUE(is_near(multihead_masked_attention(Q, K, V, 1), masked, 6e-6));
}

TEST(PrintedExamples, EinsumKeepsTheShapeThatItsDocumentPrints) {
  EinsumMultiheadAttention module(256, 8);
  const at::Tensor x = at::zeros({64, 10, 256});
  EXPECT_EQ(module(x, x, x).sizes(), at::IntArrayRef({64, 10, 256}));
}

}  // namespace
}  // namespace attn
