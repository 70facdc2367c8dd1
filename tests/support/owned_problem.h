#pragma once

#include <kernel/attention.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/elements.h"
#include "support/guarded_memory.h"

namespace attn::testing {

/// Random numbers from a seed.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  /// From 0 to n − 1.
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool chance(double p) { return std::uniform_real_distribution<>()(engine_) < p; }
  double normal() { return normal_(engine_); }
  template <class T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int64_t>(choices.size()))];
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
};

/// The sizes of a view: batch, head, row, column.
using Extent = std::array<int64_t, 4>;

/// The strides of a tensor whose dimensions lie in memory in the given order, the outermost first,
/// and without gaps; those not named have stride 0.
inline kernel::View strides_of(const Extent& extent,
                               std::initializer_list<int> order = {0, 1, 2, 3}) {
  std::array<int64_t, 4> strides{};
  int64_t step = 1;
  for (auto dimension = std::rbegin(order); dimension != std::rend(order); ++dimension) {
    strides[*dimension] = step;
    step *= extent[*dimension];
  }
  return {nullptr, strides[0], strides[1], strides[2], strides[3]};
}

/// Strides as views have them: dimensions in any order, gaps between them, some of stride 0.
inline kernel::View random_strides(const Extent& extent, Random& random, double broadcast) {
  std::array<int, 4> order{0, 1, 2, 3};
  std::array<int64_t, 4> strides{};
  const int shuffled = random.chance(0.7) ? 3 : 4;  // columns mostly stay innermost
  for (int i = shuffled - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  int64_t step = random.chance(0.85) ? 1 : 2;
  for (int i = 3; i >= 0; --i) {
    const int dimension = order[i];
    if (random.chance(broadcast)) continue;
    strides[dimension] = step;
    step = step * std::max<int64_t>(extent[dimension], 1) + random.pick({0, 0, 1, 3, 16});
  }
  for (int i = 0; i < 4; ++i) {
    if (extent[i] == 1 && random.chance(0.3)) strides[i] = 999999;  // of no meaning
  }
  return {nullptr, strides[0], strides[1], strides[2], strides[3]};
}

struct Sizes {
  int64_t batches = 1, heads = 1, key_heads = 1, queries = 1, keys = 1, head_dim = 1, value_dim = 1;
};

/// An element of a tensor, by batch, head, row and column.
using Draw = std::function<double(int64_t, int64_t, int64_t, int64_t)>;

/// A problem and the memory that its inputs lie in.
class OwnedProblem {
 public:
  OwnedProblem(const Sizes& sizes, kernel::Element element) {
    problem.batches = sizes.batches;
    problem.heads = sizes.heads;
    problem.key_heads = sizes.key_heads;
    problem.queries = sizes.queries;
    problem.keys = sizes.keys;
    problem.head_dim = sizes.head_dim;
    problem.value_dim = sizes.value_dim;
    problem.element = element;
    problem.scale = 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  }

  /// Inputs by formula, without gaps.
  OwnedProblem(const Sizes& sizes, kernel::Element element, const Draw& query, const Draw& key,
               const Draw& value)
      : OwnedProblem(sizes, element) {
    problem.query = tensor(query_extent(), strides_of(query_extent()), element, query);
    problem.key = tensor(key_extent(), strides_of(key_extent()), element, key);
    problem.value = tensor(value_extent(), strides_of(value_extent()), element, value);
  }

  /// Inputs from N(0, 1), without gaps.
  OwnedProblem(const Sizes& sizes, kernel::Element element, Random& random)
      : OwnedProblem(sizes, element, normal(random), normal(random), normal(random)) {}

  Extent query_extent() const {
    return {problem.batches, problem.heads, problem.queries, problem.head_dim};
  }
  Extent key_extent() const {
    return {problem.batches, problem.key_heads, problem.keys, problem.head_dim};
  }
  Extent value_extent() const {
    return {problem.batches, problem.key_heads, problem.keys, problem.value_dim};
  }
  Extent output_extent() const {
    return {problem.batches, problem.heads, problem.queries, problem.value_dim};
  }
  Extent logits_extent() const {
    return {problem.batches, problem.heads, problem.queries, problem.keys};
  }

  static Draw normal(Random& random) {
    return [&random](int64_t, int64_t, int64_t, int64_t) { return random.normal(); };
  }

  /// A new tensor of these strides; what lies in its gaps is NaN.
  kernel::View tensor(const Extent& extent, kernel::View view, kernel::Element element,
                      const Draw& draw) {
    return fill(
        extent, view, kernel::size_of(element),
        [&](void* data, int64_t index, double x) { write(element, x, data, index); }, draw);
  }

  /// The same of bytes, for masks.
  kernel::View bytes(const Extent& extent, kernel::View view, const Draw& draw) {
    return fill(
        extent, view, 1,
        [](void* data, int64_t index, double x) {
          static_cast<uint8_t*>(data)[index] = static_cast<uint8_t>(x);
        },
        draw);
  }

  kernel::Problem problem;

 private:
  template <class Write>
  kernel::View fill(const Extent& extent, kernel::View view, int64_t size, const Write& write_one,
                    const Draw& draw) {
    const auto index = [&view](int64_t b, int64_t h, int64_t r, int64_t c) {
      return b * view.batch + h * view.head + r * view.row + c * view.column;
    };
    const bool empty = std::count(extent.begin(), extent.end(), 0) > 0;
    const int64_t last = index(extent[0] - 1, extent[1] - 1, extent[2] - 1, extent[3] - 1);
    memory_.emplace_back(empty ? 0 : (last + 1) * size);
    void* data = memory_.back().data();
    for (int64_t b = 0; b < extent[0]; ++b) {
      for (int64_t h = 0; h < extent[1]; ++h) {
        for (int64_t r = 0; r < extent[2]; ++r) {
          for (int64_t c = 0; c < extent[3]; ++c) {
            write_one(data, index(b, h, r, c), draw(b, h, r, c));
          }
        }
      }
    }
    view.data = data;
    return view;
  }

  std::vector<GuardedMemory> memory_;
};

/// A problem in words, for the trace of a failure.
inline std::string describe(const kernel::Problem& p) {
  std::ostringstream text;
  const auto view = [&text](const char* name, const kernel::View& v) {
    text << ", " << name << " strides " << v.batch << " " << v.head << " " << v.row << " "
         << v.column;
  };
  text << name_of(p.element) << " B" << p.batches << " H" << p.heads << "/" << p.key_heads << " L"
       << p.queries << " S" << p.keys << " D" << p.head_dim << " Dv" << p.value_dim << ", scale "
       << p.scale << ", masked_score " << p.masked_score;
  view("query", p.query);
  view("key", p.key);
  view("value", p.value);
  if (p.squash != kernel::Squash::kNone) {
    text << (p.squash == kernel::Squash::kClip ? ", clip " : ", softcap ") << p.squash_limit;
  }
  if (p.dropped != 0) text << ", dropped " << p.dropped << " by seed " << p.dropout_seed;
  if (p.causal) text << ", causal " << p.causal_offset;
  if (p.attend.data != nullptr) view("attend", p.attend);
  if (p.block.data != nullptr) view("block", p.block);
  if (p.bias.data != nullptr) {
    view("bias", p.bias);
    text << " of " << name_of(p.bias_element);
  }
  if (p.dropped > 0) text << ", dropped " << p.dropped << " by seed " << p.dropout_seed;
  return text.str();
}

}  // namespace attn::testing
