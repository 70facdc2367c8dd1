// Sizes of nothing, and distances beyond 32 bits.

#include <gtest/gtest.h>
#include <kernel/attention.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/expect_accurate.h"
#include "support/mask_kinds.h"
#include "support/owned_problem.h"
#include "support/run_kernel.h"
#include "support/sparse_memory.h"

namespace attn::kernel {
namespace {

using testing::kFar;
using testing::OwnedProblem;
using testing::Random;
using testing::SparseMemory;
using testing::spread_out;

TEST(KernelMemory, NoBatchesHeadsOrQueriesAreNoWork) {  // C15
  Random random(12);
  for (const Element element : testing::kElements) {
    for (const testing::Sizes& sizes :
         {testing::Sizes{0, 2, 1, 5, 7, 4, 4}, testing::Sizes{2, 0, 1, 5, 7, 4, 4},
          testing::Sizes{2, 0, 0, 5, 7, 4, 4}, testing::Sizes{2, 2, 1, 0, 7, 4, 4}}) {
      OwnedProblem owned(sizes, element, random);
      for (const bool causal : {false, true}) {
        owned.problem.causal = causal;
        for (const Kernel& kernel : supported_kernels()) {
          SCOPED_TRACE(kernel.name);
          EXPECT_EQ(kernel.plan(owned.problem).tasks, 0);
          testing::run(kernel, owned.problem, {.logsumexp = true, .weights = true});
        }
      }
    }
  }
}

TEST(KernelMemory, RowsOverNoKeysAreZero) {  // C15
  Random random(13);
  for (const Element element : testing::kElements) {
    for (const int64_t queries : {1, 5, 40}) {
      for (const testing::MaskKind& mask : testing::mask_kinds()) {
        OwnedProblem owned({2, 2, 1, queries, 0, 4, 5}, element, random);
        mask.add(owned, random);
        owned.problem.nan_when_fully_masked = random.chance(0.5);
        owned.problem.masked_score = random.chance(0.5) ? -1e9 : -INFINITY;
        for (const Kernel& kernel : supported_kernels()) {
          SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(owned.problem));
          const auto answer =
              testing::run(kernel, owned.problem, {.logsumexp = true, .weights = true});
          EXPECT_EQ(answer.output, std::vector<double>(4 * queries * 5, 0.0));
          EXPECT_EQ(answer.logsumexp, std::vector<double>(4 * queries, -INFINITY));
        }
      }
    }
  }
}

TEST(KernelMemory, BatchesHeadsRowsAndColumnsMayLieMoreThan2GiBApart) {
  const SparseMemory memory(kFar * 5);
  if (memory.data() == nullptr) GTEST_SKIP() << "no address space";
  Random random(14);
  for (const Element element : testing::kElements) {
    for (const View& layout : testing::far_layouts(element)) {
      OwnedProblem owned({2, 2, 2, 3, 3, 2, 2}, element, random);
      const Problem& near = owned.problem;
      const testing::PlainAnswer plain = testing::PlainProblem(near).solve();
      const testing::Extent extent = owned.query_extent();  // all have the same
      Problem p = near;
      p.query = spread_out(near.query, layout, memory.data(), extent, element);
      p.key = spread_out(near.key, layout, memory.data() + 16 * size_of(element), extent, element);
      p.value =
          spread_out(near.value, layout, memory.data() + 32 * size_of(element), extent, element);
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(std::string(kernel.name) + ": " + testing::describe(p));
        testing::expect_accurate(p, testing::run(kernel, p), plain);
      }
    }
  }
}

TEST(KernelMemory, RowsOfMasksAndBiasesMayLieMoreThan2GiBApart) {
  const SparseMemory memory(kFar * 5);
  if (memory.data() == nullptr) GTEST_SKIP() << "no address space";
  Random random(15);
  for (const Element element : {Element::kFloat32, Element::kFloat16, Element::kFloat64}) {
    OwnedProblem owned({1, 2, 2, 3, 3, 2, 2}, Element::kFloat32, random);
    Problem& p = owned.problem;
    const int64_t far = kFar / size_of(element);
    for (const View& layout : {View{nullptr, 0, 100, far, 1}, View{nullptr, 0, far, 16, 1},
                               View{nullptr, 0, 100, 1, far}}) {
      testing::set_bias(owned, {1, 2, 3}, element, testing::bias_numbers(random));
      p.bias = spread_out(p.bias, layout, memory.data(), owned.logits_extent(), element);
      testing::expect_all_accurate(p);
    }
  }
  OwnedProblem owned({1, 2, 2, 3, 3, 2, 2}, Element::kFloat32, random);
  for (const bool attends : {true, false}) {
    for (const View& layout :
         {View{memory.data(), 0, 100, kFar, 1}, View{memory.data(), 0, kFar, 16, 1},
          View{memory.data(), 0, 100, 1, kFar}}) {
      for (int64_t h = 0; h < 2; ++h) {
        for (int64_t i = 0; i < 3; ++i) {
          for (int64_t j = 0; j < 3; ++j) {
            memory.data()[h * layout.head + i * layout.row + j * layout.column] =
                static_cast<std::byte>(random.below(2));
          }
        }
      }
      (attends ? owned.problem.attend : owned.problem.block) = layout;
      (attends ? owned.problem.block : owned.problem.attend) = {};
      testing::expect_all_accurate(owned.problem);
    }
  }
}

TEST(KernelMemory, OutputRowsMayLieMoreThan2GiBApart) {
  const SparseMemory memory(kFar * 5);
  if (memory.data() == nullptr) GTEST_SKIP() << "no address space";
  Random random(16);
  for (const Element element : testing::kElements) {
    const OwnedProblem owned({2, 2, 2, 3, 5, 2, 2}, element, random);
    const testing::PlainAnswer plain = testing::PlainProblem(owned.problem).solve();
    for (const View& layout : testing::far_layouts_of_results(element)) {
      for (const Kernel& kernel : supported_kernels()) {
        SCOPED_TRACE(kernel.name);
        Problem p = owned.problem;
        p.output = memory.data();
        p.output_batch = layout.batch;
        p.output_head = layout.head;
        p.output_row = layout.row;
        testing::run_in_place(kernel, p);
        testing::Answer answer;
        for (int64_t r = 0; r < 2 * 2 * 3; ++r) {
          for (int64_t x = 0; x < 2; ++x) {
            answer.output.push_back(testing::read(
                element, memory.data(),
                r / 6 * layout.batch + r / 3 % 2 * layout.head + r % 3 * layout.row + x));
          }
        }
        testing::expect_accurate(p, answer, plain);
      }
    }
  }
}

}  // namespace
}  // namespace attn::kernel
