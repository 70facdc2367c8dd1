#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <attn/mask.h>
#include <gtest/gtest.h>

#include "support/tensors.h"

namespace attn {
namespace {

using testing::bools;
using testing::error_of;

TEST(Mask, TakesTwoOrFourDimensionsAndNothingElse) {
  Mask::attend(at::zeros({3, 4}, at::kBool));
  Mask::block(at::zeros({2, 1, 1, 4}, at::kBool));
  Mask::bias(at::zeros({1, 2, 3, 4}));
  EXPECT_EQ(error_of([] {
              Mask::attend(at::zeros({2, 3, 4}, at::kBool));
            }),
            "[Mask::attend] open: expected [L, S] or [B|1, H|1, L|1, S|1], got [2, 3, 4]");
  EXPECT_EQ(error_of([] { Mask::block(at::zeros({4}, at::kBool)); }),
            "[Mask::block] blocked: expected [L, S] or [B|1, H|1, L|1, S|1], got [4]");
  EXPECT_EQ(error_of([] { Mask::bias(at::Tensor()); }),
            "[Mask::bias] bias: expected [L, S] or [B|1, H|1, L|1, S|1], got an undefined tensor");
}

TEST(Mask, TakesEachDtypeOnlyUnderItsOwnName) {
  EXPECT_EQ(error_of([] {
              Mask::attend(at::zeros({3, 4}, at::kLong));
            }),
            "[Mask::attend] open: expected dtype Bool, got Long");
  EXPECT_EQ(error_of([] {
              Mask::block(at::zeros({3, 4}));
            }),
            "[Mask::block] blocked: expected dtype Bool, got Float");
  EXPECT_EQ(error_of([] {
              Mask::bias(at::zeros({3, 4}, at::kBool));
            }),
            "[Mask::bias] bias: expected a floating dtype, got Bool");
}

TEST(Mask, IsNoneOnlyWithoutAnyPart) {
  EXPECT_TRUE(Mask::none().is_none());
  EXPECT_TRUE((Mask::none() & Mask::none()).is_none());
  EXPECT_FALSE(Mask::causal().is_none());
  EXPECT_FALSE(Mask::causal_bottom_right().is_none());
  EXPECT_FALSE(Mask::bias(at::zeros({1, 1})).is_none());
}

TEST(Mask, CombinesToWhatBothLeaveOpen) {
  const Mask both = Mask::attend(bools({1, 4}, {1, 1, 0, 0})) &
                    Mask::attend(bools({1, 4}, {1, 0, 1, 0})) &
                    Mask::block(bools({1, 4}, {1, 0, 0, 0})) &
                    Mask::block(bools({1, 4}, {0, 0, 0, 1})) & Mask::causal();
  EXPECT_TRUE(at::equal(both.attend_tensor(), bools({1, 4}, {1, 0, 0, 0})));
  EXPECT_TRUE(at::equal(both.block_tensor(), bools({1, 4}, {1, 0, 0, 1})));
  EXPECT_TRUE(both.is_causal());
  EXPECT_FALSE(both.is_causal_bottom_right());
}

TEST(Mask, NamesShapesThatDoNotCombine) {
  EXPECT_EQ(
      error_of([] {
        Mask::attend(at::zeros({3, 4}, at::kBool)) & Mask::attend(at::zeros({5, 4}, at::kBool));
      }),
      "[Mask] &: expected shapes that broadcast, got [3, 4] and [5, 4]");
}

TEST(Mask, AddsBiasesUp) {
  const Mask both = Mask::bias(at::full({1, 2}, 1.5)) & Mask::bias(at::full({2, 1}, 2.0));
  EXPECT_TRUE(at::equal(both.bias_tensor(), at::full({2, 2}, 3.5)));
}

}  // namespace
}  // namespace attn
