// The recurrence over the keys for tiles of NV vectors of queries.

#if defined(ATTN_KERNEL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_TILE_INL_H_
#undef ATTN_KERNEL_TILE_INL_H_
#else
#define ATTN_KERNEL_TILE_INL_H_
#endif

#include <algorithm>

#include "kernel/bias-inl.h"
#include "kernel/careful.h"
#include "kernel/dropout-inl.h"
#include "kernel/elements-inl.h"
#include "kernel/logsumexp.h"
#include "kernel/mask-inl.h"
#include "kernel/space.h"
#include "kernel/squash-inl.h"
#include "kernel/sum_type-inl.h"
#include "kernel/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Attention of the queries [first, last) of one head, in tiles that share each block of keys.
template <class Math, int NV>
class QueryTiles {
  using T = typename Math::Sum;
  using Key = typename Math::Key;
  using Value = typename Math::Value;
  using Open = OpenKeys<T, NV>;
  using Kept = KeptKeys<T, NV>;

 public:
  static constexpr int kWidth = NV * kLanes<T>;
  /// Tiles that share a copied block of keys and values, which costs a tile's work / this.
  static constexpr int kMaxTiles = 8;

  static int64_t space(const Problem& p, int64_t tiles) {
    Space space(nullptr);
    QueryTiles measured(p, 0, 0, 0, tiles * kWidth, space);
    return space.bytes();
  }

  QueryTiles(const Problem& p, int64_t b, int64_t h, int64_t first, int64_t last, Space& space)
      : p_(p),
        b_(b),
        h_(h),
        key_head_(h / (p.heads / p.key_heads)),
        first_(first),
        last_(last),
        masks_(p, b, h),
        bias_(p, b, h),
        dropout_(p, b, h) {
    const int64_t tiles = (last - first + kWidth - 1) / kWidth;
    queries_ = space.take<Key>(tiles * Math::row_numbers(p.head_dim) * kWidth);
    outputs_ = space.take<T>(tiles * p.value_dim * kWidth);
    tops_ = space.take<T>(tiles * kWidth);
    sums_ = space.take<T>(tiles * kWidth);
    fresh_ = space.take<bool>(tiles);
    logits_ = space.take<T>(kKeyBlock * kWidth);
    scratch_ = space.take<T>(std::max({kWidth * (p.head_dim + kBlock<T>), kWidth * p.value_dim,
                                       RowBias::kScratch<T, NV>, int64_t{kWidth} * kKeyBlock}));
    careful_ = space.take<double>(p.value_dim);
    open_ = space.take<Open>(1);
    if (dropout_.any()) kept_ = space.take<Kept>(1);
    if (!Math::keys_in_place(p)) keys_ = space.take<Key>(kKeyBlock * Math::row_numbers(p.head_dim));
    if (!Math::values_in_place(p)) values_ = space.take<Value>(kKeyBlock * p.value_dim);
  }

  void run() {
    int64_t lanes = 0;
    for (int64_t query = first_; query < last_; query += kWidth, lanes += kWidth) {
      load(tile_of(query));
    }
    for (int64_t key = 0; key < p_.keys; key += kKeyBlock) {
      if (masks_.hidden_from_all(last_, key) && blocked_weigh_nothing(p_, tops_, lanes)) break;
      const Block block = block_at(key);
      for (int64_t query = first_; query < last_; query += kWidth) absorb(tile_of(query), block);
    }
    for (int64_t query = first_; query < last_; query += kWidth) finish(tile_of(query));
  }

 private:
  /// One tile's queries, and where its state lies between the blocks.
  struct Tile {
    int64_t query;
    int64_t queries;
    Key* query_tile;
    T* output;
    T* top;  ///< largest logit so far
    T* sum;  ///< of the weights, relative to `top`
    bool* fresh;
  };

  /// Up to kKeyBlock keys and their values.
  struct Block {
    int64_t key;
    int64_t n;
    const Key* keys;
    int64_t key_stride;
    const Value* values;
    int64_t value_stride;
  };

  HWY_INLINE Tile tile_of(int64_t query) const {
    const int64_t lane = query - first_;
    return {query,
            std::min<int64_t>(kWidth, last_ - query),
            queries_ + lane * Math::row_numbers(p_.head_dim),
            outputs_ + lane * p_.value_dim,
            tops_ + lane,
            sums_ + lane,
            fresh_ + lane / kWidth};
  }

  const void* element_at(const View& view, int64_t head, int64_t row) const {
    return static_cast<const char*>(view.data) +
           (b_ * view.batch + head * view.head + row * view.row) * size_of(p_.element);
  }

  HWY_INLINE void load(const Tile& tile) {
    const Tag<T> d;
    Math::template load_tile<NV>(p_, p_.query, element_at(p_.query, h_, tile.query), tile.queries,
                                 p_.head_dim, p_.scale, scratch_, tile.query_tile);
    for (int v = 0; v < NV; ++v) {
      hn::Store(hn::Set(d, kLowest<T>), d, tile.top + v * kLanes<T>);
      hn::Store(hn::Zero(d), d, tile.sum + v * kLanes<T>);
    }
    *tile.fresh = true;
  }

  HWY_INLINE Block block_at(int64_t key) {
    const int64_t n = std::min<int64_t>(kKeyBlock, p_.keys - key);
    const void* keys = element_at(p_.key, key_head_, key);
    const void* values = element_at(p_.value, key_head_, key);
    Block block = {key,
                   n,
                   static_cast<const Key*>(keys),
                   p_.key.row,
                   static_cast<const Value*>(values),
                   p_.value.row};
    if (!Math::keys_in_place(p_)) {
      Math::stage_keys(p_, keys, n, keys_);
      block.keys = keys_;
      block.key_stride = Math::row_numbers(p_.head_dim);
    }
    if (!Math::values_in_place(p_)) {
      Math::stage_values(p_, values, n, values_);
      block.values = values_;
      block.value_stride = p_.value_dim;
    }
    return block;
  }

  HWY_INLINE void load_state(const Tile& tile, Vec<T> (&top)[NV], Vec<T> (&sum)[NV]) const {
    const Tag<T> d;
    for (int v = 0; v < NV; ++v) {
      top[v] = hn::Load(d, tile.top + v * kLanes<T>);
      sum[v] = hn::Load(d, tile.sum + v * kLanes<T>);
    }
  }

  /// Logits of the range after squash, bias and mask; raises `top` to the largest of each lane.
  HWY_INLINE void final_logits(const Tile& tile, const Block& block, KeyRange range,
                               Vec<T> (&top)[NV]) {
    if (bias_.any()) bias_.prefetch(tile.query, tile.queries, block.key + range.first, range.n);
    Math::template logits<NV>(block.keys + range.first * block.key_stride, block.key_stride,
                              range.n, tile.query_tile, p_.head_dim, p_.scale, logits_);
    if (p_.squash != Squash::kNone) squash(p_, range.n * kWidth, logits_);
    const int64_t key = block.key + range.first;
    if (range.masked) {
      if (bias_.any()) {
        Vec<T> ignored[NV];
        for (int v = 0; v < NV; ++v) ignored[v] = top[v];
        bias_.template add<NV>(tile.query, tile.queries, key, range.n, scratch_, logits_, ignored);
      }
      fill_blocked<NV>(*open_, range.first / kGroup, range.n, static_cast<T>(p_.masked_score),
                       logits_, top);
    } else if (bias_.any()) {
      bias_.template add<NV>(tile.query, tile.queries, key, range.n, scratch_, logits_, top);
    } else {
      raise_top<NV>(logits_, range.n, top);
    }
  }

  /// Adds a block to a tile: rescales what is there to the new largest logit, adds what is new.
  HWY_INLINE void absorb(const Tile& tile, const Block& block) {
    const Tag<T> d;
    const KeyRange range =
        visible_keys(masks_, tile.query, tile.queries, block.key, block.n, *open_,
                     [&] { return blocked_weigh_nothing(p_, tile.top, kWidth); });
    if (range.n == 0) return;
    Vec<T> top[NV], sum[NV], decay[NV], added[NV];
    load_state(tile, top, sum);
    final_logits(tile, block, range, top);
    for (int v = 0; v < NV; ++v) {
      decay[v] = exp(d, hn::Sub(hn::Load(d, tile.top + v * kLanes<T>), top[v]));
      added[v] = hn::Zero(d);
    }
    Math::template weights<NV>(range.n, top, logits_, added);
    for (int v = 0; v < NV; ++v) {
      hn::Store(top[v], d, tile.top + v * kLanes<T>);
      hn::Store(hn::MulAdd(sum[v], decay[v], added[v]), d, tile.sum + v * kLanes<T>);
    }
    if (dropout_.any()) drop<Math>(tile, block.key + range.first, range.n);
    Math::template output<NV>(block.values + range.first * block.value_stride, block.value_stride,
                              range.n, p_.value_dim, logits_, decay, *tile.fresh, tile.output);
    *tile.fresh = false;
  }

  /// Zeroes the weights that dropout takes. The others grow with the factors of the outputs.
  template <class AnyMath>
  HWY_INLINE void drop(const Tile& tile, int64_t key, int64_t n) {
    dropout_.template draw<T, NV>(tile.query, key, n, *kept_);
    AnyMath::template drop<NV>(*kept_, n, logits_);
  }

  /// Divides by the sums, rounds, and writes what was asked for.
  HWY_INLINE void finish(const Tile& tile) {
    const Tag<T> d;
    const bool nan = p_.nan_when_fully_masked && p_.keys > 0;
    const Vec<T> nothing = hn::Set(d, nan ? std::numeric_limits<T>::quiet_NaN() : T(0));
    const Vec<T> scale = hn::Set(d, static_cast<T>(dropout_scale(p_)));
    HWY_ALIGN T factors[kWidth];
    for (int i = 0; i < kWidth; i += kLanes<T>) {
      const Vec<T> sum = hn::Load(d, tile.sum + i);
      const Vec<T> factor = hn::Div(scale, sum);
      hn::Store(hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), nothing, factor), d, factors + i);
    }
    if (*tile.fresh) std::fill_n(tile.output, p_.value_dim * kWidth, T(0));
    const int64_t first_row =
        b_ * p_.output_batch + h_ * p_.output_head + tile.query * p_.output_row;
    char* output = static_cast<char*>(p_.output) + first_row * size_of(p_.element);
    store_tile<NV>(p_.element, tile.output, factors, tile.queries, p_.value_dim, scratch_, output,
                   p_.output_row);
    if ((masks_.any() || bias_.any()) && !all_finite(tile.output, p_.value_dim * kWidth))
      mend(tile, output);
    const int64_t row = (b_ * p_.heads + h_) * p_.queries + tile.query;
    for (int64_t i = 0; i < tile.queries; ++i) {
      store_logsumexp(p_, row + i, tile.top[i], tile.sum[i]);
    }
    if (p_.weights != nullptr) write_weights(tile, factors);
  }

  HWY_NOINLINE void mend(const Tile& tile, char* output) {
    for (int64_t i = 0; i < tile.queries; ++i, output += p_.output_row * size_of(p_.element)) {
      if (lane_is_finite(tile.output + i, p_.value_dim, kWidth)) continue;
      careful_row(p_, b_, h_, tile.query + i, careful_);
      std::copy_n(careful_, p_.value_dim, scratch_);
      store_rows(p_.element, scratch_, p_.value_dim, 1, p_.value_dim, output, 0);
    }
  }

  /// A second pass over the keys: weights are known only when all logits are.
  HWY_NOINLINE void write_weights(const Tile& tile, const T* factors) {
    const int64_t first_row = ((b_ * p_.heads + h_) * p_.queries + tile.query) * p_.keys;
    char* weights = static_cast<char*>(p_.weights) + first_row * size_of(p_.element);
    for (int64_t key = 0; key < p_.keys; key += kKeyBlock) {
      const Block block = block_at(key);
      if (masks_.any()) masks_.read(tile.query, tile.queries, key, block.n, *open_);
      Vec<T> top[NV], sum[NV];
      load_state(tile, top, sum);
      final_logits(tile, block, {0, block.n, masks_.any()}, top);
      load_state(tile, top, sum);
      SumTypeMath<T>::template weights<NV>(block.n, top, logits_, sum);
      if (dropout_.any()) drop<SumTypeMath<T>>(tile, key, block.n);
      tile_to_rows<NV>(logits_, factors, tile.queries, block.n, scratch_, kKeyBlock);
      store_rows(p_.element, scratch_, kKeyBlock, tile.queries, block.n,
                 weights + key * size_of(p_.element), p_.keys);
    }
  }

  const Problem& p_;
  const int64_t b_, h_, key_head_, first_, last_;
  const RowMasks masks_;
  const RowBias bias_;
  const RowDropout dropout_;
  Key* queries_;
  T* outputs_;
  T* tops_;
  T* sums_;
  bool* fresh_;
  T* logits_;
  T* scratch_;
  double* careful_;
  Open* open_;
  Kept* kept_ = nullptr;
  Key* keys_ = nullptr;
  Value* values_ = nullptr;
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_TILE_INL_H_
