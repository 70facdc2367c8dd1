// Dropout: the generator, which weights are kept, and what becomes of them.

#include <gtest/gtest.h>
#include <kernel/attention.h>
#include <kernel/dropout.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "support/expect_accurate.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/run_kernel.h"

namespace attn::kernel {
namespace {

using testing::OwnedProblem;
using testing::Random;

/// Tiles with tails; one tile of half the width; the queries that decoding would take; blocks with tails.
constexpr testing::Sizes kShapes[] = {{2, 3, 3, 70, 300, 9, 10}, {3, 4, 2, 5, 131, 8, 17},
                                      {2, 6, 1, 1, 700, 16, 16}, {1, 2, 2, 2, 33, 4, 3},
                                      {2, 2, 2, 33, 7, 5, 6},    {1, 1, 1, 16, 128, 8, 8}};

/// Calls check(problem) for all elements and shapes, with half of the weights dropped or so.
template <class Check>
void for_every_shape(const Check& check) {
  Random random(30);
  for (const Element element : testing::kElements) {
    for (const testing::Sizes& sizes : kShapes) {
      OwnedProblem owned(sizes, element, random);
      owned.problem.dropped = static_cast<uint32_t>(1 + random.below(65535));
      owned.problem.dropout_seed = static_cast<uint64_t>(random.below(int64_t{1} << 62)) * 4 + 1;
      SCOPED_TRACE(testing::describe(owned.problem));
      check(owned, random);
    }
  }
}

TEST(Philox, GivesThePublishedNumbers) {  // of Random123's file kat_vectors
  using Counter = std::array<uint32_t, 4>;
  constexpr uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Counter{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
            (Counter{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(KernelDropout, KeepsTheSameWeightsInEveryKernel) {
  for_every_shape([](OwnedProblem& owned, Random&) {
    Problem& p = owned.problem;
    p.scale = 0.0;  // all weights are equal, none is 0 by itself
    for (const Kernel& kernel : supported_kernels()) {
      SCOPED_TRACE(kernel.name);
      const auto weights = testing::run(kernel, p, {.weights = true}).weights;
      size_t place = 0;
      for (int64_t b = 0; b < p.batches; ++b) {
        for (int64_t h = 0; h < p.heads; ++h) {
          for (int64_t i = 0; i < p.queries; ++i) {
            for (int64_t j = 0; j < p.keys; ++j, ++place) {
              ASSERT_EQ(weights[place] != 0.0, keeps_weight(p, b, h, i, j))
                  << "batch " << b << ", head " << h << ", query " << i << ", key " << j;
            }
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace attn::kernel
