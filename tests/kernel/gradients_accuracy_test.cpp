// Gradients of every target of the kernel against plain loops in float64, of the inputs as their
// elements hold them.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <cmath>
#include <vector>

#include "support/expect_gradients.h"
#include "support/gradient_request.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/plain_gradients.h"
#include "support/problem_grids.h"
#include "support/run_gradients.h"

namespace attn::kernel {
namespace {

using testing::expect_all_accurate;
using testing::GradientRequest;
using testing::kElements;
using testing::OwnedProblem;
using testing::Random;

/// None, a tenth, half.
constexpr uint32_t kDropped[] = {0, 6554, 32768};

/// The sizes of the bias' gradient take turns.
void ask_for_bias(const OwnedProblem& owned, GradientRequest& request, size_t turn) {
  if (owned.problem.bias.data == nullptr) return;
  const testing::Extent extents[] = {
      testing::bias_extent(owned, {0, 1, 2, 3}), testing::bias_extent(owned, {1, 2, 3}),
      testing::bias_extent(owned, {0, 3}),       testing::bias_extent(owned, {2, 3}),
      testing::bias_extent(owned, {1, 2}),       testing::bias_extent(owned, {})};
  request.bias = extents[turn % std::size(extents)];
}

TEST(KernelGradientsAccuracy, HoldsForEveryMaskSquashAndMaskedScore) {
  Random random(31);
  size_t turn = 0;  // biases' gradients and dropout take turns
  testing::for_every_mask_and_squash(random, [&](OwnedProblem& owned) {
    owned.problem.dropped = kDropped[turn % 2];
    owned.problem.dropout_seed = turn;
    GradientRequest request = testing::random_request(owned, random, turn % 3 != 0);
    ask_for_bias(owned, request, turn);
    ++turn;
    expect_all_accurate(owned.problem, request);
  });
}

TEST(KernelGradientsAccuracy, HoldsAtEveryTailOfQueriesAndKeys) {
  // w−1, w and w+1 of vectors, tiles and blocks of 8 to 128.
  const int64_t lengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200};
  Random random(32);
  size_t turn = 0;
  testing::for_every_two_lengths(lengths, random, [&](OwnedProblem& owned) {
    owned.problem.dropped = kDropped[turn / 2 % 3];
    GradientRequest request = testing::random_request(owned, random, turn % 2 != 0);
    ask_for_bias(owned, request, turn);
    ++turn;
    expect_all_accurate(owned.problem, request);
  });
}

TEST(KernelGradientsAccuracy, HoldsAtEveryHeadSizeAndValueSize) {
  const int64_t sizes[] = {1, 3, 8, 15, 16, 17, 33, 63, 64, 65, 80, 128, 129, 200, 256};
  Random random(33);
  testing::for_every_two_sizes(sizes, random, [&](OwnedProblem& owned) {
    expect_all_accurate(owned.problem, testing::random_request(owned, random));
  });
}

TEST(KernelGradientsAccuracy, HoldsForGradientsOfAnyStrides) {
  Random random(34);
  testing::Sample sample;
  for (const Element element : kElements) {
    for (const testing::Sizes& sizes :
         {testing::Sizes{2, 4, 2, 37, 70, 9, 17}, testing::Sizes{2, 2, 1, 1, 300, 16, 16}}) {
      for (const std::initializer_list<int> order : {std::initializer_list<int>{0, 2, 1, 3},
                                                     {0, 1, 3, 2},
                                                     {3, 2, 1, 0},
                                                     {0, 1, 2},
                                                     {1, 3},
                                                     {2},
                                                     {}}) {  // those not named have stride 0
        if (!sample.takes_next()) continue;
        OwnedProblem owned(sizes, element, random);
        const View strides = testing::strides_of(owned.output_extent(), order);
        expect_all_accurate(owned.problem, testing::random_request(owned, random, strides));
      }
    }
  }
}

TEST(KernelGradientsAccuracy, HoldsForEveryChoiceOfGradients) {
  Random random(35);
  testing::Sample sample;
  for (const Element element : kElements) {
    for (const testing::Sizes& sizes :
         {testing::Sizes{2, 4, 2, 37, 70, 9, 17}, testing::Sizes{1, 3, 1, 2, 140, 16, 8}}) {
      for (int choice = 0; choice < 16; ++choice) {
        if (!sample.takes_next()) continue;
        OwnedProblem owned(sizes, element, random);
        testing::set_bias(owned, {1, 2, 3}, element, testing::bias_numbers(random));
        GradientRequest request = testing::random_request(owned, random);
        request.query = (choice & 1) != 0;
        request.key = (choice & 2) != 0;
        request.value = (choice & 4) != 0;
        if ((choice & 8) != 0) request.bias = testing::bias_extent(owned, {1, 2, 3});
        expect_all_accurate(owned.problem, request);
      }
    }
  }
}

TEST(KernelGradientsAccuracy, HoldsForBiasesOfEveryElementAndShape) {
  Random random(36);
  testing::Sample sample;
  for (const Element element : kElements) {
    for (const Element bias : kElements) {
      for (int dimensions = 0; dimensions < 16; ++dimensions) {
        if (!sample.takes_next()) continue;
        OwnedProblem owned({2, 4, 2, 37, 70, 8, 9}, element, random);
        testing::set_bias(owned, {0, 1, 2, 3}, bias, testing::bias_numbers(random));
        GradientRequest request = testing::random_request(owned, random);
        for (int d = 0; d < 4; ++d) {
          request.bias[d] = (dimensions >> d & 1) != 0 ? owned.logits_extent()[d] : 1;
        }
        expect_all_accurate(owned.problem, request);
      }
    }
  }
}

double relative_error(const testing::WrittenGradient& written,
                      const testing::PlainGradient& plain) {
  double difference = 0.0, size = 0.0;
  for (size_t i = 0; i < plain.numbers.size(); ++i) {
    difference += std::pow(written.numbers[i] - plain.numbers[i], 2);
    size += std::pow(plain.numbers[i], 2);
  }
  return std::sqrt(difference / size);
}

TEST(KernelGradientsAccuracy, IsBoundedForNormalInputsOfUsualSizes) {
  Random random(37);
  testing::Sample sample;
  for (const Element element : kElements) {
    for (const bool causal : {false, true}) {
      for (const uint32_t dropped : {0, 6554}) {
        if (!sample.takes_next()) continue;
        OwnedProblem owned({1, 2, 2, 260, 390, 64, 64}, element, random);
        if (causal) testing::set_causal(owned, 0);
        owned.problem.dropped = dropped;
        const GradientRequest request = testing::random_request(owned, random, false);
        SCOPED_TRACE(testing::describe(owned.problem));
        const testing::PlainGradients plain =
            testing::PlainGradientProblem(owned.problem, request).solve();
        for (const Kernel& kernel : supported_kernels()) {
          SCOPED_TRACE(kernel.name);
          const auto answer = testing::run_gradients(kernel, owned.problem, request);
          const double bound = testing::relative_gradient_bound(element);
          EXPECT_LE(relative_error(answer.query, plain.query), bound);
          EXPECT_LE(relative_error(answer.key, plain.key), bound);
          EXPECT_LE(relative_error(answer.value, plain.value), bound);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attn::kernel
