// The fused attention kernel.
//
//     output = softmax(mask(squash(scale · Q · Kᵀ) + bias)) · V
//
// The logits are never materialised. The keys pass by in blocks of 128, and each row of queries keeps
// three things between the blocks (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022,
// arXiv:2205.14135): its largest logit so far m, the sum l of e^(logit − m), and the sum o of
// e^(logit − m) · v. A block with the largest logit m' rescales l and o by e^(m − m') and adds its own
// part; in the end the output is o / l, and the log-sum-exp m + log l. A block's output is summed up by
// itself before it is added, so that errors grow with the number of blocks, not of keys.
//
// Queries lie in the lanes (tile-inl.h). A tile has W queries, two vectors of them, and computes
//
//     Sᵀ [128 × W]  = K · Qᵀ      Q packed once per tile, transposed and scaled
//     m, l, Pᵀ                    lane by lane
//     Oᵀ [Dv × W]  += Vᵀ · Pᵀ     Pᵀ lies where Sᵀ was, in the L1 cache
//
// so that maxima and sums need no operation across lanes, and one number of K or V, broadcast, meets W
// queries: K and V are read where they lie, with any strides and without tails, whatever the head size.
// Eight rows of accumulators by two vectors fill the registers; every broadcast feeds two
// multiply-adds. Of a tile, W · (D + Dv + 128) numbers are live, which the L1 cache holds to D = 64 and
// the L2 cache beyond; K and V are read once for W queries, W / 2 operations a byte in float32.
//
// Elements of another type than the sums, and columns that are not adjacent, are copied block by block
// for up to eight tiles (elements-inl.h). Where the CPU has AVX512_BF16, bfloat16 is multiplied as it
// is, in pairs (bf16-inl.h).
//
// Masks (mask-inl.h) are read as bytes. A block that no query of a tile may see is left out where that
// changes no bit: where e^(masked score − m) is 0 in every row, always so for −∞. A tile whose output
// is not finite although a mask was there is computed again, row by row, so that NaN or ∞ behind the
// mask stay there (careful.h).
//
// Few queries (decode-inl.h) would leave most lanes empty: for one or two, the lanes run over the
// features instead, the heads of a group read K and V together, and chunks of 512 keys are tasks of
// their own, merged in their order.
//
// Dropout (dropout-inl.h) follows from a weight's place alone: a counter-based generator makes 16 random
// bits of the seed, batch, head, query and key, for eight keys at once and the queries in the lanes. A
// block's weights are zeroed after they are summed up, so that l and the log-sum-exp know nothing of it;
// those that stay grow in the end, with the division by l.
//
// A query's numbers are computed in the same order whatever the width of the tile, its place in it,
// the batch and the thread. So the bits depend on neither, and targets with fused multiply-adds agree in
// float32. Not here: gradients (gradients.cpp), sparse patterns, AMX.

#include "kernel/attention.h"
#include "kernel/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/bf16-inl.h"
#include "kernel/bf16_decode-inl.h"
#include "kernel/decode-inl.h"
#include "kernel/sum_type-inl.h"
#include "kernel/tile-inl.h"
#include "kernel/types-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

// In gradients.cpp.
Plan plan_gradients(const Problem& p, const Gradients& g);
void run_gradients(const Problem& p, const Gradients& g, int64_t task, void* workspace,
                   void* partials);
void merge_gradients(const Problem& p, const Gradients& g, int64_t merge, void* workspace,
                     void* partials);
#if HWY_TARGET == HWY_AVX3
Plan plan_gradients_bf16(const Problem& p, const Gradients& g);
void run_gradients_bf16(const Problem& p, const Gradients& g, int64_t task, void* workspace,
                        void* partials);
#endif

/// How the queries of every head are cut into tasks of some tiles each.
struct Cut {
  int64_t per_task;  ///< queries
  int64_t parts;     ///< tasks of a head
};

template <class Math>
HWY_INLINE Cut cut(const Problem& p) {
  constexpr int64_t kWidth = QueryTiles<Math, 2>::kWidth;
  const int64_t tiles = (p.queries + kWidth - 1) / kWidth;
  const bool in_place = Math::keys_in_place(p) && Math::values_in_place(p);
  const int64_t shared = in_place ? 1 : QueryTiles<Math, 2>::kMaxTiles;
  const int64_t per_task = std::max<int64_t>(1, std::min(shared, tiles)) * kWidth;
  return {per_task, (p.queries + per_task - 1) / per_task};
}

template <class Math>
Plan plan_of(const Problem& p) {
  const Cut c = cut<Math>(p);
  Plan plan;
  plan.tasks = p.batches * p.heads * c.parts;
  plan.workspace_bytes = QueryTiles<Math, 2>::space(p, c.per_task / QueryTiles<Math, 2>::kWidth);
  return plan;
}

template <class Math, int NV>
HWY_NOINLINE void run_tiles(const Problem& p, int64_t b, int64_t h, int64_t first, int64_t last,
                            void* workspace) {
  Space space(workspace);
  QueryTiles<Math, NV>(p, b, h, first, last, space).run();
}

template <class Math>
void run_task(const Problem& p, int64_t task, void* workspace) {
  const Cut c = cut<Math>(p);
  const int64_t part = task % c.parts;
  const int64_t head = task / c.parts;
  const int64_t first = (p.causal ? c.parts - 1 - part : part) * c.per_task;  // the longest first
  const int64_t last = std::min(first + c.per_task, p.queries);
  const int64_t b = head / p.heads;
  const int64_t h = head % p.heads;
  if (last - first <= QueryTiles<Math, 1>::kWidth) {
    run_tiles<Math, 1>(p, b, h, first, last, workspace);
  } else {
    run_tiles<Math, 2>(p, b, h, first, last, workspace);
  }
}

template <class Products>
HWY_NOINLINE void decode_task(const Problem& p, int64_t task, void* workspace, void* partials) {
  const int64_t chunks = Decoder<Products>::chunks(p);
  const int64_t head = task / chunks;
  Space space(workspace);
  Decoder<Products> decoder(p, head / p.key_heads, head % p.key_heads, space);
  decoder.run(task % chunks, decoder.partials_of(head, partials));
}

template <class Products>
HWY_NOINLINE void decode_merge(const Problem& p, int64_t head, void* workspace, void* partials) {
  Space space(workspace);
  Decoder<Products> decoder(p, head / p.key_heads, head % p.key_heads, space);
  decoder.merge(decoder.partials_of(head, partials));
}

Plan plan(const Problem& p) {
  if (p.batches == 0 || p.heads == 0 || p.queries == 0) return {};
  return with_types(p, [&]<class T, class E>(T, E) {
    return suits_decoding(p) ? Decoder<SumTypeProducts<T, E>>::plan(p) : plan_of<SumTypeMath<T>>(p);
  });
}

void run(const Problem& p, int64_t task, void* workspace, void* partials) {
  with_types(p, [&]<class T, class E>(T, E) {
    suits_decoding(p) ? decode_task<SumTypeProducts<T, E>>(p, task, workspace, partials)
                      : run_task<SumTypeMath<T>>(p, task, workspace);
  });
}

void merge(const Problem& p, int64_t merge, void* workspace, void* partials) {
  with_types(p, [&]<class T, class E>(T, E) {
    decode_merge<SumTypeProducts<T, E>>(p, merge, workspace, partials);
  });
}

#if HWY_TARGET == HWY_AVX3
// The same three where the CPU has AVX512_BF16.

Plan plan_bf16(const Problem& p) {
  const Plan plain = plan(p);
  if (plain.tasks == 0 || p.element != Element::kBFloat16) return plain;
  return suits_decoding(p) ? Decoder<BFloat16Products>::plan(p) : plan_of<BFloat16Math>(p);
}

void run_bf16(const Problem& p, int64_t task, void* workspace, void* partials) {
  if (p.element != Element::kBFloat16) return run(p, task, workspace, partials);
  suits_decoding(p) ? decode_task<BFloat16Products>(p, task, workspace, partials)
                    : run_task<BFloat16Math>(p, task, workspace);
}

void merge_bf16(const Problem& p, int64_t merge_task, void* workspace, void* partials) {
  if (p.element != Element::kBFloat16) return merge(p, merge_task, workspace, partials);
  decode_merge<BFloat16Products>(p, merge_task, workspace, partials);
}
#endif

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernel {
namespace {

// Highway's headers alone are used: asking the CPU through its library would make that library a
// dependency of every program. The features are those of Highway's attributes for each target.
#if HWY_ARCH_X86
bool has_sse4() {
  return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("sse4.2") &&
         __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("aes");
}
bool has_avx2() {  // F16C, which Clang 14 cannot ask for, is older than AVX2 and in every CPU with it
  return has_sse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
#endif

}  // namespace

const std::vector<Kernel>& supported_kernels() {
  static const std::vector<Kernel> kernels = [] {
    std::vector<Kernel> found;
#if HWY_TARGETS & HWY_AVX3
    if (has_avx512() && __builtin_cpu_supports("avx512bf16")) {
      found.push_back({"avx512_bf16", N_AVX3::plan_bf16, N_AVX3::run_bf16, N_AVX3::merge_bf16,
                       N_AVX3::plan_gradients_bf16, N_AVX3::run_gradients_bf16,
                       N_AVX3::merge_gradients});
    }
    if (has_avx512())
      found.push_back({"avx512", N_AVX3::plan, N_AVX3::run, N_AVX3::merge, N_AVX3::plan_gradients,
                       N_AVX3::run_gradients, N_AVX3::merge_gradients});
#endif
#if HWY_TARGETS & HWY_AVX2
    if (has_avx2())
      found.push_back({"avx2", N_AVX2::plan, N_AVX2::run, N_AVX2::merge, N_AVX2::plan_gradients,
                       N_AVX2::run_gradients, N_AVX2::merge_gradients});
#endif
#if HWY_TARGETS & HWY_SSE4
    if (has_sse4())
      found.push_back({"sse4", N_SSE4::plan, N_SSE4::run, N_SSE4::merge, N_SSE4::plan_gradients,
                       N_SSE4::run_gradients, N_SSE4::merge_gradients});
#endif
#if HWY_TARGETS & HWY_NEON
    found.push_back({"neon", N_NEON::plan, N_NEON::run, N_NEON::merge, N_NEON::plan_gradients,
                     N_NEON::run_gradients, N_NEON::merge_gradients});
#endif
#if HWY_TARGETS & HWY_EMU128
    found.push_back({"scalar", N_EMU128::plan, N_EMU128::run, N_EMU128::merge,
                     N_EMU128::plan_gradients, N_EMU128::run_gradients, N_EMU128::merge_gradients});
#endif
    return found;
  }();
  return kernels;
}

}  // namespace attn::kernel
#endif
