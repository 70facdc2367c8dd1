// What the fused backend does with memory: it reads tensors where they lie, needs O(L + S) beside them, and
// writes where the heads can be merged.

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>

#include "support/fused.h"
#include "support/peak_memory.h"
#include "support/random_call.h"
#include "support/recorded_operators.h"

namespace attn {
namespace {

using testing::all_layouts;
using testing::copies_during;
using testing::fused;
using testing::lay;
using testing::Layout;
using testing::on_every_target;
using testing::operators_during;
using testing::peak_growth;

TEST(FusedMemory, NoTensorIsCopiedWhateverItsStrides) {
  const at::Tensor attend = at::randn({50, 40}).t().gt(0);
  const at::Tensor bias = at::randn({1, 1, 1, 50});
  const std::vector<Mask> masks = {Mask::none(), Mask::causal(), Mask::attend(attend),
                                   Mask::block(attend) & Mask::bias(bias)};
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Layout layout : all_layouts()) {
      const at::Tensor query = lay(at::randn({2, 4, 40, 16}).to(dtype), layout);
      const at::Tensor key = lay(at::randn({2, 2, 50, 16}).to(dtype), layout);
      for (const Mask& mask : masks) {
        const auto options = fused(mask).need_logsumexp(true);
        EXPECT_EQ(copies_during([&] { attention(query, key, key, options); }),
                  std::vector<std::string>());
      }
      EXPECT_EQ(copies_during([&] { attention(query[0], key[0], key[0], fused()); }),
                std::vector<std::string>());
    }
  }
  const at::Tensor x = at::randn({1, 2, 40, 8});
  EXPECT_NE(copies_during(
                [&] { attention(x, x, x, fused(Mask::causal()).backend(Backend::kReference)); }),
            std::vector<std::string>());
}

TEST(FusedMemory, HeadsOfTheOutputMergeWithoutACopy) {
  for (const int64_t L : {1, 2, 3, 70}) {
    for (const Layout layout : all_layouts()) {
      const at::Tensor query = lay(at::randn({3, 4, L, 16}), layout);
      const at::Tensor key = lay(at::randn({3, 2, 50, 16}), layout);
      const at::Tensor output = attention(query, key, key, fused()).output;
      EXPECT_TRUE(output.transpose(1, 2).is_contiguous()) << L << " " << output.strides();
    }
  }
}

TEST(FusedMemory, GrowsWithLengthsAndNotWithTheirProduct) {
  constexpr int64_t kLength = 4096, kDim = 16;
  torch::manual_seed(1);
  const at::Tensor x = at::randn({1, kLength, 1, kDim}).transpose(1, 2);
  const at::Tensor attend = at::randint(2, {kLength, kLength}).to(at::kBool);
  const at::Tensor bias = at::randn({kLength, kLength});
  const std::vector<Mask> masks = {Mask::none(), Mask::causal(), Mask::attend(attend),
                                   Mask::block(attend), Mask::bias(bias)};
  const auto growth_of = [&](const Mask& mask, Backend backend) {
    return peak_growth(
        [&] { attention(x, x, x, fused(mask).need_logsumexp(true).backend(backend)); });
  };
  const auto growth_of_reference = growth_of(Mask::none(), Backend::kReference);
  if (!growth_of_reference) GTEST_SKIP() << "/proc/self/clear_refs cannot be written";
  EXPECT_GT(*growth_of_reference, kLength * kLength * 4);  // what would be seen

  const int64_t results = kLength * (kDim + 1) * 4;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const Mask& mask : masks) {
      const at::Tensor typed = x.to(dtype);
      on_every_target([&] {
        const auto growth =
            peak_growth([&] { attention(typed, typed, typed, fused(mask).need_logsumexp(true)); });
        // One byte for each four pairs would be more; scratch is some 200 KB a thread.
        EXPECT_LE(*growth, results + kLength * kLength / 4);
      });
    }
  }
}

/// A forward and a backward pass from the sum of the output, whose gradient has strides of 0.
void train(const std::array<at::Tensor, 3>& x, const AttentionOptions& options) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& operand : x) leaves.push_back(operand.detach().requires_grad_());
  const at::Tensor output = attention(leaves[0], leaves[1], leaves[2], options).output;
  torch::autograd::grad({output}, leaves, {at::ones({1}, output.options()).expand(output.sizes())});
}

TEST(FusedMemory, NoTensorIsCopiedToDifferentiate) {
  const at::Tensor attend = at::randn({50, 40}).t().gt(0);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Layout layout : all_layouts()) {
      const at::Tensor query = lay(at::randn({2, 4, 40, 16}).to(dtype), layout);
      const at::Tensor key = lay(at::randn({2, 2, 50, 16}).to(dtype), layout);
      const at::Tensor bias = at::randn({1, 1, 1, 50}).requires_grad_();
      for (const Mask& mask :
           {Mask::none(), Mask::causal(), Mask::attend(attend), Mask::bias(bias)}) {
        const auto options = fused(mask).dropout_p(0.1);
        EXPECT_EQ(copies_during([&] {
                    train({query, key, key}, options);
                  }),
                  std::vector<std::string>());
      }
    }
  }
}

TEST(FusedMemory, OnlyGradientsThatAreAskedForAreMade) {
  const at::Tensor x = at::randn({2, 4, 40, 16});
  for (size_t wanted = 1; wanted <= 3; ++wanted) {
    std::vector<at::Tensor> leaves(3, x), asked;
    for (size_t i = 0; i < wanted; ++i) {
      leaves[i] = x.detach().requires_grad_();
      asked.push_back(leaves[i]);
    }
    const at::Tensor output = attention(leaves[0], leaves[1], leaves[2], fused()).output;
    const at::Tensor start = at::ones_like(output);
    const auto names = operators_during([&] { torch::autograd::grad({output}, asked, {start}); });
    EXPECT_EQ(std::count(names.begin(), names.end(), "aten::empty_strided"),
              static_cast<std::ptrdiff_t>(wanted));
  }
}

TEST(FusedMemory, GradientsOfSplitHeadsMergeWithoutACopy) {
  at::Tensor x = at::randn({2, 40, 64}).requires_grad_();
  const at::Tensor heads = x.unflatten(-1, {4, 16}).transpose(1, 2);  // [B, H, L, D]
  const at::Tensor output = attention(heads, heads, heads, fused(Mask::causal())).output;
  const at::Tensor start = at::randn(output.sizes());
  EXPECT_EQ(copies_during([&] { torch::autograd::grad({output}, {x}, {start}); }),
            std::vector<std::string>());
}

TEST(FusedMemory, DifferentiatingGrowsWithLengthsAndNotWithTheirProduct) {
  constexpr int64_t kLength = 4096, kDim = 16;
  torch::manual_seed(1);
  const at::Tensor x = at::randn({1, kLength, 1, kDim}).transpose(1, 2);
  const at::Tensor attend = at::randint(2, {kLength, kLength}).to(at::kBool);
  const at::Tensor bias = at::randn({1, 1, 1, kLength}).requires_grad_();
  const std::vector<Mask> masks = {Mask::none(), Mask::causal(), Mask::attend(attend),
                                   Mask::bias(bias)};
  const auto growth_of = [&](const at::Tensor& typed, const AttentionOptions& options) {
    return peak_growth([&] { train({typed, typed, typed}, options); });
  };
  const auto growth_of_reference = growth_of(x, fused().backend(Backend::kReference));
  if (!growth_of_reference) GTEST_SKIP() << "/proc/self/clear_refs cannot be written";
  EXPECT_GT(*growth_of_reference, kLength * kLength * 4);  // what would be seen

  const int64_t results = kLength * (4 * kDim + 2) * 4;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const Mask& mask : masks) {
      const at::Tensor typed = x.to(dtype);
      on_every_target([&] {
        // One byte for each four pairs would be more; scratch is some hundreds of KB a thread.
        EXPECT_LE(*growth_of(typed, fused(mask).dropout_p(0.1)), results + kLength * kLength / 4);
      });
    }
  }
}

TEST(FusedMemory, AnyByteButZeroIsTrue) {
  torch::manual_seed(2);
  const at::Tensor bytes = at::randint(0, 256, {40, 70}, at::kByte).mul(at::randint(2, {40, 70}));
  const at::Tensor odd = bytes.to(at::kByte).view(at::kBool), clean = bytes.ne(0);
  const at::Tensor x = at::randn({1, 2, 40, 8}), y = at::randn({1, 2, 70, 8});
  on_every_target([&] {
    const auto output = [&](const Mask& mask) { return attention(x, y, y, fused(mask)).output; };
    EXPECT_TRUE(at::equal(output(Mask::attend(odd)), output(Mask::attend(clean))));
    EXPECT_TRUE(at::equal(output(Mask::block(odd)), output(Mask::block(clean))));
  });
}

TEST(FusedMemory, NegationsThatLibTorchPutsOffAreNotRead) {
  const at::Tensor x = at::randn({1, 2, 5, 8}), y = at::randn({1, 2, 7, 8}), b = at::randn({5, 7});
  const auto put_off = [](const at::Tensor& tensor) { return at::_neg_view(tensor); };
  EXPECT_THROW(attention(put_off(x), y, y, fused()), BackendError);
  EXPECT_THROW(attention(x, y, put_off(y), fused()), BackendError);
  EXPECT_THROW(attention(x, y, y, fused(Mask::bias(put_off(b)))), BackendError);
  const AttentionOptions elsewhere = AttentionOptions().mask(Mask::bias(put_off(b)));
  const AttentionOptions there =
      AttentionOptions().mask(Mask::bias(b.neg())).backend(Backend::kLibTorch);
  EXPECT_TRUE(at::equal(attention(x, y, y, elsewhere).output, attention(x, y, y, there).output));
}

}  // namespace
}  // namespace attn
