#include "bench/rows.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "bench/contest.h"

namespace attn::bench {
namespace {

double epsilon_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kHalf:
      return std::numeric_limits<at::Half>::epsilon();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::epsilon();
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

/// ‖a − b‖ / ‖b‖
double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).to(at::kDouble).norm() / b.to(at::kDouble).norm()).item<double>();
}

TEST(RowsTest, NamesTellRowsApart) {
  std::set<std::string> names;
  for (const Row& row : rows()) {
    EXPECT_TRUE(names.insert(full_name(row)).second) << full_name(row);
  }
}

/// The row itself, or so little of it that graphs and gradients are quick; a tail of queries is
/// left.
Row small_enough(Row row) {
  if (row.pass != Pass::kForward) row.L = row.S = std::min<int64_t>(row.L, 45);
  return row;
}

// Two ways of computing differ by roundings of independent signs: the logits, the weights and the
// output are rounded to the dtype, ε/2 each, and logits of up to 5 carry their rounding into the
// weights. A gradient is one product more. 16 ε covers them; a mask, a scale or a head in the wrong
// place moves all of the output.
TEST(RowsTest, OpponentsComputeWhatAttnComputes) {
  for (Row row : rows()) {
    SCOPED_TRACE(full_name(row));
    row = small_enough(row);
    row.dropout_p = 0.0;
    const c10::InferenceMode mode = mode_of(row);
    const Contest contest = make_contest(row);
    const Tensors mine = contest.attn();
    ASSERT_TRUE(contest.sdpa || contest.eager);
    for (const Call* opponent : {&contest.sdpa, &contest.eager}) {
      if (!*opponent) continue;
      const Tensors theirs = (*opponent)();
      ASSERT_EQ(mine.size(), theirs.size());
      for (size_t i = 0; i < mine.size(); ++i) {
        ASSERT_EQ(mine[i].sizes(), theirs[i].sizes());
        EXPECT_LE(distance(mine[i], theirs[i]), 16 * epsilon_of(row.dtype)) << i;
      }
    }
  }
}

/// Half of E‖a − b‖² of two calls, which is the variance that dropout gives the output.
double variance_between_calls(const Call& call) {
  return (call().front() - call().front()).to(at::kDouble).square().sum().item<double>() / 2.0;
}

// Each contestant draws for itself. A weight w that is dropped with probability p has the variance
// w² p / (1 − p): that of the output tells p. Two calls differ in a key with probability
// 2p (1 − p) = 0.18, so that H·L = 1024 rows estimate it to √(0.82 / 0.18 / 1024) = 7 % even if one key
// had all of the weight. Half as much again is 4 deviations of the ratio, and p = 0.15 would be more.
TEST(RowsTest, DropoutDropsAsMuchForEveryContestant) {
  const Row row = {.L = 128, .S = 128, .dropout_p = 0.1};
  const c10::InferenceMode mode = mode_of(row);
  const Contest contest = make_contest(row);
  const double mine = variance_between_calls(contest.attn);
  ASSERT_GT(mine, 0.0);
  for (const Call* opponent : {&contest.sdpa, &contest.eager}) {
    const double theirs = variance_between_calls(*opponent);
    EXPECT_LT(mine, 1.5 * theirs);
    EXPECT_GT(mine, theirs / 1.5);
  }
}

// The graph stands before the first call: a call leaves nothing behind that the next one lacks.
TEST(RowsTest, ABackwardGivesTheSameGradientsAgain) {
  const Row row = {.L = 33, .S = 33, .pass = Pass::kBackward};
  const Contest contest = make_contest(row);
  for (const Call* call : {&contest.attn, &contest.sdpa, &contest.eager}) {
    const Tensors first = (*call)();
    const Tensors second = (*call)();
    ASSERT_EQ(first.size(), 3);  // of query, key and value
    for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(second[i])) << i;
  }
}

TEST(RowsTest, AStepGivesTheOutputAndEveryGradient) {
  const Row bias = {.L = 8, .S = 8, .mask = MaskKind::kBiasPerHead, .pass = Pass::kStep};
  EXPECT_EQ(make_contest(bias).attn().size(), 1 + 4);  // query, key, value, bias
  const Row causal = {.subject = Subject::kCausalLayer,
                      .L = 8,
                      .S = 8,
                      .mask = MaskKind::kCausal,
                      .pass = Pass::kStep};
  EXPECT_EQ(make_contest(causal).attn().size(), 1 + 5);  // two maps with biases, x
}

// 4·B·H·L·S·D by hand; a causal mask leaves (L + 1) / 2L of it.
TEST(RowsTest, CountTheWholeSquare) {
  const Row full = {.L = 512, .S = 512};
  EXPECT_DOUBLE_EQ(work(full), 0.536870912);
  EXPECT_DOUBLE_EQ(open_share(full), 1.0);
  Row causal = full;
  causal.mask = MaskKind::kCausal;
  EXPECT_DOUBLE_EQ(work(causal), 0.536870912);
  EXPECT_DOUBLE_EQ(open_share(causal), 513.0 / 1024.0);
}

// 8·B·T·E² + 4·B·T²·E by hand. The mask saves nothing of the projections.
TEST(RowsTest, CountTheProjectionsOfALayer) {
  const Row layer = {
      .subject = Subject::kCausalLayer, .L = 512, .S = 512, .mask = MaskKind::kCausal};
  EXPECT_DOUBLE_EQ(work(layer), 1.073741824 + 0.536870912);
  EXPECT_DOUBLE_EQ(work(layer) * open_share(layer), 1.073741824 + 0.536870912 * (513.0 / 1024.0));
}

// 10·B·H·L·S·D by hand for the backward alone, 14 with the forward.
TEST(RowsTest, CountFiveProductsOfTheBackward) {
  const Row backward = {.L = 512, .S = 512, .pass = Pass::kBackward};
  EXPECT_DOUBLE_EQ(work(backward), 1.34217728);
  Row causal = backward;
  causal.mask = MaskKind::kCausal;
  EXPECT_DOUBLE_EQ(work(causal), 1.34217728);
  EXPECT_DOUBLE_EQ(open_share(causal), 513.0 / 1024.0);
  const Row step = {.L = 512, .S = 512, .pass = Pass::kStep};
  EXPECT_DOUBLE_EQ(work(step), 1.879048192);
}

// Three products with D and two with Dv backward, one and one forward: 2·8·L·S·(4·64 + 3·128) by hand.
TEST(RowsTest, CountTheSizeOfTheValuesApart) {
  const Row step = {.L = 512, .S = 512, .Dv = 128, .pass = Pass::kStep};
  EXPECT_DOUBLE_EQ(work(step), 2.68435456);
}

// 24·B·T·E² + 14·B·T²·E by hand: the gradients of a map's input and of its weight cost as much as the
// map, each.
TEST(RowsTest, CountThreeTimesTheProjectionsOfAStep) {
  const Row step = {.subject = Subject::kProjectedLayer, .L = 512, .S = 512, .pass = Pass::kStep};
  EXPECT_DOUBLE_EQ(work(step), 3.221225472 + 1.879048192);
}

// 2·Hk·S·D elements of two bytes.
TEST(RowsTest, CountTheBytesOfACacheOnceForAllHeads) {
  const Row decoding = {.dtype = at::kBFloat16, .H = 32, .S = 4096};
  EXPECT_EQ(unit(decoding), "GB/s");
  EXPECT_DOUBLE_EQ(work(decoding), 2.0 * 8 * 4096 * 64 * 2 * 1e-9);
}

}  // namespace
}  // namespace attn::bench
