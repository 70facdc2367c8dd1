// The fused backend's bits depend on neither threads nor batchmates, and calls do not disturb each other.
//
// Compiled with OpenMP: without, at::parallel_for runs on one thread.

#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "support/fused.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace attn {
namespace {

using testing::error_of;
using testing::fused;
using testing::on_every_target;
using testing::Threads;

struct ThreadedCall {
  at::Tensor query, key, value;
  AttentionOptions options = {};

  AttentionResult run() const { return attention(query, key, value, options); }
  /// Gradients of all operands, and of the mask's bias, for a fixed start.
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> leaves = {query.detach().requires_grad_(),
                                      key.detach().requires_grad_(),
                                      value.detach().requires_grad_()};
    AttentionOptions training = AttentionOptions(options).need_weights(false);
    if (options.mask().bias_tensor().defined()) {
      leaves.push_back(options.mask().bias_tensor().detach().requires_grad_());
      training.mask(Mask::bias(leaves.back()));
    }
    const AttentionResult result = attention(leaves[0], leaves[1], leaves[2], training);
    return torch::autograd::grad({result.output, result.logsumexp}, leaves,
                                 {result.output.detach(), result.logsumexp.detach()});
  }
  /// That of some batches alone.
  ThreadedCall batches(int64_t first, int64_t count) const {
    const auto some = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
    return {some(query), some(key), some(value), options};
  }
};

bool same_bits(const AttentionResult& a, const AttentionResult& b) {
  return at::equal(a.output, b.output) && at::equal(a.weights, b.weights) &&
         at::equal(a.logsumexp, b.logsumexp);
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

/// Large enough for threads: prompts, a grouped decoding step, keys that must be copied first.
std::vector<ThreadedCall> calls() {
  torch::manual_seed(4);
  std::vector<ThreadedCall> calls;
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto make = [&](at::IntArrayRef q, at::IntArrayRef k, const Mask& mask) {
      const at::Tensor key = at::randn(k).to(dtype);
      calls.push_back({at::randn(q).to(dtype), key, at::randn(k).to(dtype),
                       fused(mask).need_weights(true).need_logsumexp(true)});
    };
    make({4, 3, 150, 40}, {4, 3, 170, 40}, Mask::none());
    make({4, 2, 400, 32}, {4, 2, 400, 32}, Mask::causal());
    make({4, 2, 130, 32}, {4, 1, 131, 32}, Mask::attend(at::randn({130, 131}).gt(0)));
    make({4, 8, 1, 64}, {4, 2, 1500, 64}, Mask::none());
    make({4, 8, 2, 64}, {4, 8, 1100, 64}, Mask::bias(at::randn({1, 8, 2, 1100})));
    ThreadedCall transposed = calls[calls.size() - 5];
    transposed.key = transposed.key.transpose(2, 3).contiguous().transpose(2, 3);
    calls.push_back(transposed);
  }
  return calls;
}

TEST(FusedThreads, AnyNumberOfThemGivesTheSameBits) {
  for (const ThreadedCall& call : calls()) {
    on_every_target([&] {
      const Threads one(1);
      const AttentionResult expected = call.run();
      for (const int count : {2, 3, 8, 1}) {
        at::set_num_threads(count);
        EXPECT_TRUE(same_bits(call.run(), expected)) << count << " threads, " << call.query.sizes();
      }
    });
  }
}

TEST(FusedThreads, AnyNumberOfThemGivesTheSameBitsOfGradients) {
  for (const ThreadedCall& call : calls()) {
    on_every_target([&] {
      const Threads one(1);
      const std::vector<at::Tensor> expected = call.gradients();
      for (const int count : {2, 3, 4, 5, 6, 7, 8}) {
        at::set_num_threads(count);
        EXPECT_TRUE(same_bits(call.gradients(), expected))
            << count << " threads, " << call.query.sizes();
      }
    });
  }
}

TEST(FusedThreads, AnyNumberOfThemDropsTheSameWeights) {
  for (ThreadedCall call : calls()) {
    call.options.dropout_p(0.2);
    on_every_target([&] {
      const auto seeded = [&](auto run) {
        torch::manual_seed(1);
        return run();
      };
      const Threads one(1);
      const AttentionResult result = seeded([&] { return call.run(); });
      const std::vector<at::Tensor> gradients = seeded([&] { return call.gradients(); });
      for (const int count : {2, 3, 8}) {
        at::set_num_threads(count);
        EXPECT_TRUE(same_bits(seeded([&] { return call.run(); }), result)) << count;
        EXPECT_TRUE(same_bits(seeded([&] { return call.gradients(); }), gradients)) << count;
      }
    });
  }
}

TEST(FusedThreads, C34_AGradientsBitsDoNotDependOnBatchmates) {
  for (const ThreadedCall& call : calls()) {
    if (call.options.mask().bias_tensor().defined()) continue;  // one gradient for all batches
    on_every_target([&] {
      const std::vector<at::Tensor> together = call.gradients();
      for (const auto& [first, count] : {std::pair{0, 1}, std::pair{3, 1}, std::pair{1, 3}}) {
        std::vector<at::Tensor> expected;
        for (const at::Tensor& x : together) expected.push_back(x.narrow(0, first, count));
        EXPECT_TRUE(same_bits(call.batches(first, count).gradients(), expected))
            << call.query.sizes() << call.query.dtype();
      }
    });
  }
}

TEST(FusedThreads, C34_ARowsBitsDoNotDependOnItsBatchmates) {
  for (const ThreadedCall& call : calls()) {
    on_every_target([&] {
      const AttentionResult together = call.run();
      for (const auto& [first, count] : {std::pair{0, 1}, std::pair{3, 1}, std::pair{1, 3}}) {
        const auto part = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
        EXPECT_TRUE(
            same_bits(call.batches(first, count).run(),
                      {part(together.output), part(together.weights), part(together.logsumexp)}))
            << call.query.sizes() << call.query.dtype();
      }
    });
  }
}

TEST(FusedThreads, C31_EightThreadsAtOnceGetWhatEachGetsAlone) {
  const std::vector<ThreadedCall> all = calls();
  for (const kernel::Kernel& kernel : kernel::supported_kernels()) {
    std::vector<AttentionResult> expected;
    {
      const SimdGuard guard(kernel);
      for (const ThreadedCall& call : all) expected.push_back(call.run());
    }
    std::atomic<int> agreeing = 0;
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        const SimdGuard guard(kernel);
        for (size_t n = 0; n < all.size(); ++n) {
          const size_t i = (n + 2 * t) % all.size();
          agreeing += same_bits(all[i].run(), expected[i]) ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(agreeing, 8 * static_cast<int>(all.size())) << kernel.name;
  }
}

TEST(FusedThreads, C31_EightThreadsDifferentiateAtOnce) {
  const std::vector<ThreadedCall> all = calls();
  std::vector<std::vector<at::Tensor>> expected;
  for (const ThreadedCall& call : all) expected.push_back(call.gradients());
  std::atomic<int> agreeing = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t n = 0; n < all.size(); ++n) {
        const size_t i = (n + 2 * t) % all.size();
        agreeing += same_bits(all[i].gradients(), expected[i]) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(agreeing, 8 * static_cast<int>(all.size()));
}

TEST(FusedThreads, C32_ItRunsInsideAParallelRegion) {
  const Threads four(4);
  for (const ThreadedCall& call : calls()) {
    const AttentionResult expected = call.run();
    std::atomic<int> agreeing = 0, inside = 0;
    at::parallel_for(0, 8, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        inside += at::in_parallel_region() ? 1 : 0;
        agreeing += same_bits(call.run(), expected) ? 1 : 0;
      }
    });
    EXPECT_EQ(inside, 8);
    EXPECT_EQ(agreeing, 8);
  }
}

TEST(FusedThreads, C32_MoreThreadsThanBeforeHaveScratchOfTheirOwn) {
  const ThreadedCall call = calls()[1];
  const Threads one(1);
  const AttentionResult expected = call.run();
  at::set_num_threads(16);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(same_bits(call.run(), expected));
}

TEST(FusedThreads, C32_AnErrorInsideAParallelRegionReachesTheCaller) {
  const Threads four(4);
  const at::Tensor x = at::randn({1, 2, 5, 8}), wrong = at::randn({1, 2, 5, 7});
  const auto call = [&] {
    at::parallel_for(0, 8, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) attention(x, i == 7 ? wrong : x, x, fused());
    });
  };
  EXPECT_EQ(error_of(call), "[attention] key head size: expected 8 (from query), got 7");
  EXPECT_TRUE(attention(x, x, x, fused()).output.isfinite().all().item<bool>());
}

TEST(FusedThreads, AGuardedTargetServesTheThreadThatAskedAlone) {
  const std::string usual = simd_target();
  const SimdGuard guard(kernel::supported_kernels().back());
  EXPECT_EQ(simd_target(), kernel::supported_kernels().back().name);
  std::string elsewhere;
  std::thread([&] { elsewhere = simd_target(); }).join();
  EXPECT_EQ(elsewhere, usual);
}

}  // namespace
}  // namespace attn
