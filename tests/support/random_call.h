#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <attn/functional.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "support/plain_attention.h"
#include "support/repetitions.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace attn::testing {

/// Choices of a seed, which LibTorch's random tensors follow too.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) { torch::manual_seed(seed); }

  bool chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1p-53 < p; }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[below(static_cast<int64_t>(from.size()))];
  }

 private:
  std::mt19937_64 engine_;
};

/// How a tensor [B, H, T, D] lies in memory.
enum class Layout {
  kContiguous,
  kHeadsLast,      ///< [B, T, H, D]
  kFused,          ///< the middle third of [B, T, 3, H, D]
  kTransposed,     ///< [B, H, D, T]
  kBatchInside,    ///< [T, D, H, B]
  kEveryOtherRow,  ///< a slice of step 2
  kEveryOtherColumn,
  kOdd,       ///< inside rows of D + 3, from the first row and column on
  kOneBatch,  ///< stride 0
  kOneHead,   ///< stride 0
};

inline std::vector<Layout> all_layouts() {
  std::vector<Layout> all;
  for (int i = 0; i <= static_cast<int>(Layout::kOneHead); ++i) {
    all.push_back(static_cast<Layout>(i));
  }
  return all;
}

inline Layout random_layout(Dice& dice) {
  using enum Layout;
  return dice.pick({kContiguous, kHeadsLast, kHeadsLast, kFused, kFused, kTransposed, kBatchInside,
                    kEveryOtherRow, kEveryOtherColumn, kOdd, kOneBatch, kOneHead});
}

/// The values in another layout; what lies between them is NaN. A batch or head that stands for all is
/// the first.
inline at::Tensor lay(const at::Tensor& x, Layout layout) {
  const auto B = x.size(0), H = x.size(1), T = x.size(2), D = x.size(3);
  const auto inside = [&](at::IntArrayRef shape, auto view) {
    at::Tensor memory = at::full(shape, NAN, x.options());
    at::Tensor place = view(memory);
    place.copy_(x);
    return place;
  };
  switch (layout) {
    case Layout::kContiguous:
      return x.contiguous();
    case Layout::kHeadsLast:
      return x.transpose(1, 2).contiguous().transpose(1, 2);
    case Layout::kFused:
      return inside({B, T, 3, H, D}, [](auto& m) { return m.select(2, 1).transpose(1, 2); });
    case Layout::kTransposed:
      return x.transpose(2, 3).contiguous().transpose(2, 3);
    case Layout::kBatchInside:
      return x.permute({2, 3, 1, 0}).contiguous().permute({3, 2, 0, 1});
    case Layout::kEveryOtherRow:
      return inside({B, H, 2 * T, D}, [&](auto& m) { return m.slice(2, 1, 2 * T, 2); });
    case Layout::kEveryOtherColumn:
      return inside({B, H, T, 2 * D}, [&](auto& m) { return m.slice(3, 0, 2 * D, 2); });
    case Layout::kOdd:
      return inside({B, H, T + 1, D + 3},
                    [&](auto& m) { return m.narrow(2, 1, T).narrow(3, 1, D); });
    case Layout::kOneBatch:
      return x.narrow(0, 0, std::min<int64_t>(B, 1)).contiguous().expand({B, H, T, D});
    case Layout::kOneHead:
      return x.narrow(1, 0, 1).contiguous().expand({B, H, T, D});
  }
  return x;
}

/// The sizes of an attention; mostly small, often at a tail.
struct RandomSizes {
  int64_t B = 1, H = 1, Hk = 1, L = 1, S = 1, D = 1, Dv = 1;

  explicit RandomSizes(Dice& dice) {
    const auto length = [&] {
      if (dice.chance(0.02)) return int64_t{0};
      return dice.chance(0.5)
                 ? dice.pick<int64_t>({1, 8, 16, 32, 64, 128}) + dice.pick<int64_t>({0, 0, 1, 2})
                 : 1 + dice.below(dice.pick<int64_t>({4, 70, 300}));
    };
    const auto dim = [&] { return 1 + dice.below(dice.pick<int64_t>({5, 40, 140})); };
    do {
      B = dice.chance(0.01) ? 0 : 1 + dice.below(3);
      Hk = 1 + dice.below(3);
      H = Hk * dice.pick<int64_t>({1, 1, 2, 4});
      L = dice.chance(0.25) ? 1 + dice.below(3) : length();
      S = dice.chance(0.1) ? 500 + dice.below(700) : length();
      D = dim();
      Dv = dice.chance(0.5) ? D : dim();
    } while (B * H * L * S * (D + Dv) > 500'000);
  }
  at::DimVector logits() const { return {B, H, L, S}; }
};

/// True in regions of 20 × 40, others mixed, so that tiles are open, blocked or of both kinds.
inline at::Tensor random_openness(at::IntArrayRef shape, Dice& dice) {
  if (dice.chance(0.05)) return at::full(shape, dice.chance(0.5), at::kBool);
  const int64_t rows = shape.end()[-2], columns = shape.end()[-1];
  at::DimVector coarse(shape);
  coarse.end()[-2] = rows / 20 + 1, coarse.end()[-1] = columns / 40 + 1;
  const at::Tensor kind = at::randint(4, coarse)
                              .repeat_interleave(20, -2)
                              .narrow(-2, 0, rows)
                              .repeat_interleave(40, -1)
                              .narrow(-1, 0, columns);
  return kind.eq(0).logical_or(kind.gt(1).logical_and(at::rand(shape).lt(0.6)));
}

/// A mask, and what its tensors come to.
struct RandomMask {
  Mask mask = Mask::none();
  at::Tensor open = {}, bias = {};  ///< [B, H, L, S]

  RandomMask(const RandomSizes& s, Dice& dice) {
    if (dice.chance(0.2)) join(Mask::causal(), lower_triangle(s.L, s.S), s);
    if (dice.chance(0.2)) {
      join(Mask::causal_bottom_right(), lower_triangle(s.L, s.S, s.S - s.L), s);
    }
    for (int i = 0; i < 2; ++i) {  // the second combines with the first
      if (dice.chance(0.2)) {
        const at::Tensor attend = laid_out(random_openness(random_shape(s, dice), dice), dice);
        join(Mask::attend(attend), attend, s);
      }
      if (dice.chance(0.2)) {
        const at::Tensor block = laid_out(random_openness(random_shape(s, dice), dice), dice);
        join(Mask::block(block), block.logical_not(), s);
      }
    }
    if (dice.chance(0.3)) {
      const at::DimVector shape = random_shape(s, dice);
      at::Tensor numbers = at::randn(shape).to(
          dice.pick({at::kFloat, at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}));
      if (dice.chance(0.5)) {
        numbers = numbers.masked_fill(random_openness(shape, dice).logical_not(), -INFINITY);
      }
      numbers = laid_out(numbers, dice);
      mask = mask & Mask::bias(numbers);
      bias = numbers.expand(s.logits());
    }
  }

 private:
  void join(const Mask& more, const at::Tensor& leaves_open, const RandomSizes& s) {
    mask = mask & more;
    const at::Tensor whole = leaves_open.expand(s.logits());
    open = open.defined() ? open.logical_and(whole) : whole;
  }

  static at::DimVector random_shape(const RandomSizes& s, Dice& dice) {
    const auto size = [&](int64_t n) { return dice.chance(0.4) ? 1 : n; };
    if (dice.chance(0.2)) return {size(s.L), size(s.S)};
    return {size(s.B), size(s.H), size(s.L), size(s.S)};
  }

  static at::Tensor laid_out(const at::Tensor& x, Dice& dice) {
    if (dice.chance(0.5)) return x;
    if (dice.chance(0.5)) return x.transpose(-1, -2).contiguous().transpose(-1, -2);
    return x.repeat_interleave(3, -1).slice(-1, 0, 3 * x.size(-1), 3);
  }
};

/// Calls check(dice) with the dice of one seed after the other until one fails.
template <class Check>
void for_dice(uint64_t cases, Check check) {
  const Threads one(1);  // as fast, and the same bits
  for_seeds(cases, [&](uint64_t seed) {
    Dice dice(seed);
    check(dice);
  });
}

}  // namespace attn::testing
