#include "bench/rows.h"

#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

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

// Two ways of computing differ by roundings of independent signs: the logits, the weights and the
// output are rounded to the dtype, ε/2 each, and logits of up to 5 carry their rounding into the
// weights. 16 ε covers them; a mask, a scale or a head in the wrong place moves all of the output.
TEST(RowsTest, OpponentsComputeWhatAttnComputes) {
  const c10::InferenceMode no_gradients;
  for (const Row& row : rows()) {
    SCOPED_TRACE(full_name(row));
    const Contest contest = make_contest(row);
    const at::Tensor output = contest.attn();
    ASSERT_TRUE(contest.sdpa || contest.eager);
    for (const Call* opponent : {&contest.sdpa, &contest.eager}) {
      if (!*opponent) continue;
      const at::Tensor other = (*opponent)();
      ASSERT_EQ(output.sizes(), other.sizes());
      EXPECT_LE(distance(output, other), 16 * epsilon_of(row.dtype));
    }
  }
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

// 2·Hk·S·D elements of two bytes.
TEST(RowsTest, CountTheBytesOfACacheOnceForAllHeads) {
  const Row decoding = {.dtype = at::kBFloat16, .H = 32, .S = 4096};
  EXPECT_EQ(unit(decoding), "GB/s");
  EXPECT_DOUBLE_EQ(work(decoding), 2.0 * 8 * 4096 * 64 * 2 * 1e-9);
}

}  // namespace
}  // namespace attn::bench
