// The gradients of the fused attention kernel (attention.cpp), from inputs, output and log-sum-exp.
//
// Nothing of size L × S is kept from the forward pass or written here. With the weights P, recomputed
// from the logits and the log-sum-exp, and the incoming gradient dO (Dao et al. 2022,
// arXiv:2205.14135, appendix B.4):
//
//     dV = Pᵀ · dO
//     dS = P ∘ (dO · Vᵀ − δ)        δ = rowsum(dO ∘ O) − the gradient of the log-sum-exp
//     dQ = scale · dS · K           dS times the slope of the squash, if there is one
//     dK = scale · dSᵀ · Q
//
// and dS, summed over the dimensions in which it is broadcast, is the bias's gradient. Dropout keeps
// its weights for P in dV and for dO · Vᵀ, and is drawn anew from the same counters. Blocked keys
// have no gradient; under a finite masked score they have a weight, which dV gets.
//
// The tiles are those of the forward pass, queries in the lanes (gradients-inl.h). Three of the five
// products, K · Qᵀ, V · dOᵀ and Kᵀ · dSᵀ, are its two. Sums over queries, dV and dK, put the features
// in the lanes, and broadcast the numbers of Pᵀ and dSᵀ where the tiles left them
// (gradient_products-inl.h), 128 queries at a time, against blocks of 64 keys: what lives meanwhile fits
// the L2 cache, one tile's P and dS the L1 cache. A query's gradient that is not finite although a mask
// was there is computed again, key by key, so that NaN or ∞ behind the mask stay there (careful.h).
//
// A task goes through all queries for a range of keys (gradient_cut.h), so that dK and dV have one
// owner and nothing is atomic. Where keys are cut into parts, dQ is summed over them by a second round
// in their order. The cut depends on shapes alone, and so do the bits of the result.

#include "kernel/attention.h"
#include "kernel/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/gradients.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernel/bf16_gradients-inl.h"
#include "kernel/gradient_cut.h"
#include "kernel/gradients-inl.h"
#include "kernel/sum_type_gradients-inl.h"
#include "kernel/types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// What tasks leave for the second round: the query's gradients of each part, [B, H, parts, L, D], and
/// the bias's of each chain, [cells, chains, heads of a unit or 1, rows, columns].
template <class T>
struct GradientPartials {
  GradientPartials(const Problem& p, const Gradients& g, const GradientCut& cut, void* memory) {
    Space space(memory);
    if (g.query.data != nullptr && cut.parts > 1) {
      query = space.take<T>(p.batches * p.heads * cut.parts * p.queries * p.head_dim);
      query_merges = p.batches * p.heads * merges_of(p.queries);
    }
    if (g.bias.data != nullptr) {
      bias_heads = cut.share_heads ? 1 : p.heads / p.key_heads;
      bias_numbers = bias_heads * g.bias.rows * g.bias.columns;
      const bool same_type = size_of(p.bias_element) == sizeof(T);
      bias_in_place = cut.chains == 1 && same_type;
      if (!bias_in_place) {
        bias = space.take<T>(cut.cells * cut.chains * bias_numbers);
        bias_merges = cut.cells * merges_of(bias_heads * g.bias.rows);
      }
    }
    bytes = space.bytes();
  }

  static int64_t merges_of(int64_t rows) { return (rows + kMergeRows - 1) / kMergeRows; }

  T* query = nullptr;
  T* bias = nullptr;
  int64_t query_merges = 0;
  int64_t bias_merges = 0;
  int64_t bias_heads = 0;
  int64_t bias_numbers = 0;  ///< of one chain
  bool bias_in_place = false;
  int64_t bytes = 0;
};

template <class Math, int NV>
struct GradientTask {
  using T = typename Math::Sum;

  static int64_t space(const Problem& p, const Gradients& g, const GradientCut& cut) {
    Space space(nullptr);
    const int64_t last = std::min(cut.part_keys, p.keys);
    const RowSums<Math> key_sums(p, g.key, p.head_dim, 0, last, space);
    const RowSums<Math> value_sums(p, g.value, p.value_dim, 0, last, space);
    const GradientTiles<Math, NV> tiles(p, g, 0, 0, 0, 0, last, nullptr, space);
    return space.bytes();
  }

  /// One chain of units, for one part of the keys.
  static HWY_NOINLINE void run(const Problem& p, const Gradients& g, int64_t task, void* workspace,
                               void* memory) {
    const GradientCut cut = cut_gradients(p, g);
    const GradientPartials<T> partials(p, g, cut, memory);
    const int64_t lines = cut.cells * cut.chains;
    const int64_t part = task / lines;  // under causality, the first parts are the longest
    const int64_t cell = task % lines / cut.chains;
    const int64_t chain = task % cut.chains;
    const int64_t first = part * cut.part_keys;
    const int64_t last = std::min(first + cut.part_keys, p.keys);
    T* bias_to = partials.bias_in_place
                     ? static_cast<T*>(g.bias.data) + cell * partials.bias_numbers
                     : partials.bias + (cell * cut.chains + chain) * partials.bias_numbers;

    Space space(workspace);
    RowSums<Math> key_sums(p, g.key, p.head_dim, first, last, space);
    RowSums<Math> value_sums(p, g.value, p.value_dim, first, last, space);
    BiasSums<T> bias_sums(p, g.bias, first, last, bias_to);
    const int64_t group = p.heads / p.key_heads;
    const int64_t end = (chain + 1) * cut.members / cut.chains;
    for (int64_t member = chain * cut.members / cut.chains; member < end; ++member) {
      const auto [b, key_head] = cut.unit(p, cell, member);
      key_sums.start(b, key_head);
      value_sums.start(b, key_head);
      for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
        T* query_sums = partials.query;
        if (query_sums != nullptr) {
          query_sums += ((b * p.heads + h) * cut.parts + part) * p.queries * p.head_dim;
        }
        Space rest = space;
        GradientTiles<Math, NV>(p, g, b, h, key_head, first, last, query_sums, rest)
            .run(key_sums, value_sums, bias_sums);
      }
      key_sums.finish();
      value_sums.finish();
    }
  }
};

template <class Math>
bool fits_one_vector(const Problem& p) {
  return p.queries <= kLanes<typename Math::Sum>;
}

template <class Math>
Plan plan_of(const Problem& p, const Gradients& g) {
  using T = typename Math::Sum;
  const GradientCut cut = cut_gradients(p, g);
  const GradientPartials<T> partials(p, g, cut, nullptr);
  Plan plan;
  plan.tasks = cut.tasks();
  plan.merges = partials.query_merges + partials.bias_merges;
  plan.partials_bytes = partials.bytes;
  plan.workspace_bytes =
      std::max(fits_one_vector<Math>(p) ? GradientTask<Math, 1>::space(p, g, cut)
                                        : GradientTask<Math, 2>::space(p, g, cut),
               static_cast<int64_t>(sizeof(T)) * std::max(p.head_dim, g.bias.columns) + kAlignment);
  return plan;
}

template <class Math>
void run_of(const Problem& p, const Gradients& g, int64_t task, void* workspace, void* partials) {
  fits_one_vector<Math>(p) ? GradientTask<Math, 1>::run(p, g, task, workspace, partials)
                           : GradientTask<Math, 2>::run(p, g, task, workspace, partials);
}

/// The sum of `count` rows that lie `distance` apart, in their order.
template <class T>
HWY_INLINE void sum_rows(const T* rows, int64_t distance, int64_t count, int64_t columns,
                         T* HWY_RESTRICT sum) {
  std::copy_n(rows, columns, sum);
  for (int64_t i = 1; i < count; ++i) {
    const T* HWY_RESTRICT row = rows + i * distance;
    for (int64_t x = 0; x < columns; ++x) sum[x] += row[x];
  }
}

template <class T>
HWY_NOINLINE void merge_of(const Problem& p, const Gradients& g, int64_t merge, void* workspace,
                           void* memory) {
  const GradientCut cut = cut_gradients(p, g);
  const GradientPartials<T> partials(p, g, cut, memory);
  T* sum = Space(workspace).take<T>(std::max(p.head_dim, g.bias.columns));
  if (merge < partials.query_merges) {
    const int64_t blocks = partials.merges_of(p.queries);
    const int64_t head = merge / blocks;
    const int64_t first = merge % blocks * kMergeRows;
    char* to =
        static_cast<char*>(g.query.data) +
        (head / p.heads * g.query.batch + head % p.heads * g.query.head) * size_of(p.element);
    for (int64_t i = first; i < std::min(first + kMergeRows, p.queries); ++i) {
      const T* rows = partials.query + (head * cut.parts * p.queries + i) * p.head_dim;
      sum_rows(rows, p.queries * p.head_dim, cut.parts, p.head_dim, sum);
      store_rows(p.element, sum, 0, 1, p.head_dim, to + i * g.query.row * size_of(p.element), 0);
    }
    return;
  }
  merge -= partials.query_merges;
  const int64_t rows = partials.bias_heads * g.bias.rows;
  const int64_t blocks = partials.merges_of(rows);
  const int64_t cell = merge / blocks;
  const int64_t first = merge % blocks * kMergeRows;
  char* to =
      static_cast<char*>(g.bias.data) + cell * partials.bias_numbers * size_of(p.bias_element);
  for (int64_t i = first; i < std::min(first + kMergeRows, rows); ++i) {
    const T* from = partials.bias + cell * cut.chains * partials.bias_numbers + i * g.bias.columns;
    sum_rows(from, partials.bias_numbers, cut.chains, g.bias.columns, sum);
    store_rows(p.bias_element, sum, 0, 1, g.bias.columns,
               to + i * g.bias.columns * size_of(p.bias_element), 0);
  }
}

/// Without batches or heads there is one task: a bias gradient of zeros.
Plan plan_of_nothing() {
  Plan plan;
  plan.tasks = 1;
  return plan;
}

void run_nothing(const Problem& p, const BiasGradient& bias) {
  if (bias.data == nullptr) return;
  const int64_t numbers = bias.batches * bias.heads * bias.rows * bias.columns;
  std::memset(bias.data, 0, static_cast<size_t>(numbers * size_of(p.bias_element)));
}

Plan plan_gradients(const Problem& p, const Gradients& g) {
  if (!cut_gradients(p, g).has_units()) return plan_of_nothing();
  return with_types(p,
                    [&]<class T, class E>(T, E) { return plan_of<SumTypeGradientMath<T>>(p, g); });
}

void run_gradients(const Problem& p, const Gradients& g, int64_t task, void* workspace,
                   void* partials) {
  if (!cut_gradients(p, g).has_units()) return run_nothing(p, g.bias);
  with_types(p, [&]<class T, class E>(T, E) {
    run_of<SumTypeGradientMath<T>>(p, g, task, workspace, partials);
  });
}

void merge_gradients(const Problem& p, const Gradients& g, int64_t merge, void* workspace,
                     void* partials) {
  with_types(p, [&]<class T, class E>(T, E) { merge_of<T>(p, g, merge, workspace, partials); });
}

#if HWY_TARGET == HWY_AVX3
// The first two where the CPU has AVX512_BF16.

Plan plan_gradients_bf16(const Problem& p, const Gradients& g) {
  if (p.element != Element::kBFloat16 || !cut_gradients(p, g).has_units()) {
    return plan_gradients(p, g);
  }
  return plan_of<BFloat16GradientMath>(p, g);
}

void run_gradients_bf16(const Problem& p, const Gradients& g, int64_t task, void* workspace,
                        void* partials) {
  if (p.element != Element::kBFloat16 || !cut_gradients(p, g).has_units()) {
    return run_gradients(p, g, task, workspace, partials);
  }
  run_of<BFloat16GradientMath>(p, g, task, workspace, partials);
}
#endif

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
