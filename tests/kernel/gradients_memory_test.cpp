// Gradients of nothing, up to the borders of memory, and at distances beyond 32 bits.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/expect_gradients.h"
#include "support/gradient_request.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/plain_gradients.h"
#include "support/run_gradients.h"
#include "support/sparse_memory.h"

namespace attn::kernel {
namespace {

using testing::expect_all_accurate;
using testing::GradientAnswer;
using testing::GradientRequest;
using testing::kFar;
using testing::OwnedProblem;
using testing::Random;
using testing::SparseMemory;
using testing::spread_out;

TEST(KernelGradientsMemory, WithoutBatchesHeadsQueriesOrKeysAreZero) {  // C15
  Random random(61);
  for (const Element element : testing::kElements) {
    for (const testing::Sizes& sizes :
         {testing::Sizes{0, 2, 1, 5, 7, 4, 4}, testing::Sizes{2, 0, 1, 5, 7, 4, 4},
          testing::Sizes{2, 0, 0, 5, 7, 4, 4}, testing::Sizes{2, 2, 1, 0, 7, 4, 4},
          testing::Sizes{2, 2, 1, 5, 0, 4, 4}, testing::Sizes{2, 2, 1, 70, 0, 4, 4},
          testing::Sizes{2, 2, 1, 0, 150, 4, 4}}) {
      OwnedProblem owned(sizes, element, random);
      GradientRequest request = testing::random_request(owned, random);
      testing::set_bias(owned, {0, 1, 2, 3}, Element::kFloat32, testing::bias_numbers(random));
      for (const std::initializer_list<int> dimensions :
           {std::initializer_list<int>{2}, {3}, {1, 2}, {0, 1, 2, 3}, {}}) {
        request.bias = testing::bias_extent(owned, dimensions);
        for (const bool causal : {false, true}) {
          owned.problem.causal = causal;
          expect_all_accurate(owned.problem, request);  // of what has no terms
        }
      }
    }
  }
}

TEST(KernelGradientsMemory, StayWithinPagesThatTensorsFill) {
  // Rows of 4 KiB, and columns of them: query, key, value, their gradients, masks and biases begin and end
  // where a page does.
  Random random(62);
  for (const Element element : testing::kElements) {
    const int64_t page = 4096 / size_of(element);
    for (const testing::Sizes& sizes :
         {testing::Sizes{1, 1, 1, 5, 7, page, page}, testing::Sizes{1, 1, 1, page, 33, 1, 1},
          testing::Sizes{1, 1, 1, 33, page, 3, 5}, testing::Sizes{1, 1, 1, 1, page, 9, 7}}) {
      for (const bool masked : {false, true}) {
        OwnedProblem owned(sizes, element, random);
        GradientRequest request = testing::random_request(owned, random);
        if (masked) {
          testing::set_block(owned, {2, 3}, testing::block_bytes(random));
          testing::set_bias(owned, {2, 3}, Element::kFloat32, testing::bias_numbers(random));
          request.bias = testing::bias_extent(owned, {2, 3});
        }
        expect_all_accurate(owned.problem, request);
      }
    }
  }
}

TEST(KernelGradientsMemory, InputsMayLieMoreThan2GiBApart) {
  const SparseMemory memory(kFar * 5);
  if (memory.data() == nullptr) GTEST_SKIP() << "no address space";
  Random random(63);
  for (const Element element : testing::kElements) {
    for (const View& layout : testing::far_layouts(element)) {
      OwnedProblem owned({2, 2, 2, 3, 3, 2, 2}, element, random);
      Problem p = owned.problem;
      GradientRequest request = testing::random_request(owned, random);
      const testing::Extent extent = owned.query_extent();  // all have the same
      int64_t offset = 0;
      for (View* view : {&p.query, &p.key, &p.value, &request.output_gradient}) {
        *view = spread_out(*view, layout, memory.data() + offset, extent, element);
        offset += 16 * size_of(element);
      }
      expect_all_accurate(p, request);
    }
  }
}

TEST(KernelGradientsMemory, RowsOfGradientsMayLieMoreThan2GiBApart) {
  const SparseMemory memory(kFar * 5);
  if (memory.data() == nullptr) GTEST_SKIP() << "no address space";
  Random random(64);
  for (const Element element : testing::kElements) {
    OwnedProblem owned({2, 2, 2, 3, 3, 2, 2}, element, random);
    const GradientRequest request = testing::random_request(owned, random);
    for (const View& layout : testing::far_layouts_of_results(element)) {
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        const GradientAnswer near = testing::run_gradients(kernel, owned.problem, request);
        const testing::ForwardPass forward(kernel, owned.problem);
        Gradients g = forward.gradients(request);
        int64_t offset = 0;
        for (GradientView* view : {&g.query, &g.key, &g.value}) {
          *view = {memory.data() + offset, layout.batch, layout.head, layout.row};
          offset += 200 * size_of(element);
        }
        testing::run_gradients_in_place(kernel, owned.problem, g);
        const auto numbers = [&](const GradientView& view) {
          std::vector<double> all;
          for (int64_t at = 0; at < 2 * 2 * 3 * 2; ++at) {  // all have the same extent
            const int64_t index =
                at / 12 * view.batch + at / 6 % 2 * view.head + at / 2 % 3 * view.row + at % 2;
            all.push_back(testing::read(element, view.data, index));
          }
          return all;
        };
        EXPECT_EQ(numbers(g.query), near.query.numbers);
        EXPECT_EQ(numbers(g.key), near.key.numbers);
        EXPECT_EQ(numbers(g.value), near.value.numbers);
      }
    }
  }
}

}  // namespace
}  // namespace attn::kernel
