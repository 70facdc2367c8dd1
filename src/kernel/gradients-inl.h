// The gradients that tiles of queries give, block of keys by block of keys.

#if defined(ATTN_KERNEL_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_GRADIENTS_INL_H_
#undef ATTN_KERNEL_GRADIENTS_INL_H_
#else
#define ATTN_KERNEL_GRADIENTS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/bias-inl.h"
#include "kernel/careful.h"
#include "kernel/dropout-inl.h"
#include "kernel/elements-inl.h"
#include "kernel/gradient_sums-inl.h"
#include "kernel/logit_gradients-inl.h"
#include "kernel/mask-inl.h"
#include "kernel/space.h"
#include "kernel/squash-inl.h"
#include "kernel/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Keys that are worked on together: a tile's weights and their gradients stay in the L1 cache.
constexpr int kGradientBlock = 64;

/// What the queries of one head give to the gradients, seen from the keys [first, last).
template <class Math, int NV>
class GradientTiles {
  using T = typename Math::Sum;
  using Number = typename Math::Key;
  using Open = OpenKeys<T, NV>;
  using Kept = KeptKeys<T, NV>;

 public:
  static constexpr int kWidth = NV * kLanes<T>;
  static constexpr int kTiles = std::max(1, Math::kGroupQueries / kWidth);

  /// `query_sums` is where the query's gradient grows, rows of D numbers, if it is not finished here.
  GradientTiles(const Problem& p, const Gradients& g, int64_t b, int64_t h, int64_t key_head,
                int64_t first, int64_t last, T* query_sums, Space& space)
      : p_(p),
        g_(g),
        b_(b),
        h_(h),
        key_head_(key_head),
        first_(first),
        last_(last),
        query_sums_(query_sums),
        asks_logits_(g.query.data != nullptr || g.key.data != nullptr || g.bias.data != nullptr),
        keys_in_place_(Math::in_place(p, p.key, p.head_dim)),
        values_in_place_(Math::in_place(p, p.value, p.value_dim)),
        masks_(p, b, h),
        bias_(p, b, h),
        dropout_(p, b, h) {
    const int64_t queries = kTiles * kWidth;
    query_tiles_ = space.take<Number>(Math::row_numbers(p.head_dim) * queries);
    output_tiles_ = space.take<Number>(Math::row_numbers(p.value_dim) * queries);
    query_rows_ = space.take<Number>(Math::right_rows(queries) * Math::right_row(p.head_dim));
    output_rows_ = space.take<Number>(Math::right_rows(queries) * Math::right_row(p.value_dim));
    query_gradients_ = space.take<T>(p.head_dim * queries);
    weights_ = space.take<T>(kGradientBlock * queries);
    gradients_ = space.take<T>(kGradientBlock * queries);
    statistics_ = QueryStatistics<T>(queries, space);
    scratch_ = space.take<T>(
        std::max({kWidth * (p.head_dim + kBlock<T>), kWidth * (p.value_dim + kBlock<T>),
                  2 * whole_vectors<T>(p.value_dim), RowBias::kScratch<T, NV>,
                  kWidth * BiasSums<T>::kScratchRow}));
    open_ = space.take<Open>(1);
    all_open_ = space.take<typename Open::Word>(kWidth);
    if (all_open_ != nullptr) std::fill_n(all_open_, kWidth, ~typename Open::Word{0});
    careful_ = space.take<double>(p.head_dim);
    if (dropout_.any()) kept_ = space.take<Kept>(1);
    if (p.squash != Squash::kNone) slope_ = space.take<T>(kGradientBlock * kWidth);
    if (!keys_in_place_) keys_ = space.take<Number>(kGradientBlock * Math::row_numbers(p.head_dim));
    if (!values_in_place_) {
      values_ = space.take<Number>(kGradientBlock * Math::row_numbers(p.value_dim));
    }
    if (Math::kPairsKeys) {
      key_pairs_ = space.take<Number>(kGradientBlock * p.head_dim);
      gradient_pairs_ = space.take<Number>(kGradientBlock * kWidth);
    }
  }

  void run(RowSums<Math>& key_sums, RowSums<Math>& value_sums, BiasSums<T>& bias_sums) {
    for (int64_t query = 0; query < p_.queries; query += kTiles * kWidth) {
      begin(query);
      if (!sees_nothing()) {
        for (int t = 0; t < tiles_in_use_; ++t) load(tiles_[t], t);
        for (int64_t key = first_; key < last_; key += kGradientBlock) {
          absorb(key, key_sums, value_sums, bias_sums);
        }
      }
      finish();
    }
  }

 private:
  /// A tile's queries and whether its blocked keys have no weight, exactly.
  struct Tile {
    int64_t query;
    int64_t queries;
    bool skips_blocked;
    bool fresh;  ///< nothing was added to its query_gradients_ yet
  };

  /// Keys and values of a block, as the products read them.
  struct Block {
    const Number* keys;
    int64_t key_row;
    const Number* values;
    int64_t value_row;
  };

  const void* element_at(const View& view, int64_t head, int64_t row) const {
    return static_cast<const char*>(view.data) +
           (b_ * view.batch + head * view.head + row * view.row) * size_of(p_.element);
  }

  void begin(int64_t query) {
    tiles_in_use_ = 0;
    for (; tiles_in_use_ < kTiles && query < p_.queries; query += kWidth) {
      tiles_[tiles_in_use_++] = {query, std::min<int64_t>(kWidth, p_.queries - query), false, true};
    }
  }

  /// Whether causality hides all keys from the tiles, which then need not even be loaded.
  bool sees_nothing() const {
    const Tile& last = tiles_[tiles_in_use_ - 1];
    return masks_.hidden_from_all(last.query + last.queries, first_) && !p_.nan_when_fully_masked &&
           p_.masked_score == -std::numeric_limits<double>::infinity();
  }

  void load(Tile& tile, int t) {
    const void* queries = element_at(p_.query, h_, tile.query);
    const void* output_gradients = element_at(g_.output_gradient, h_, tile.query);
    Math::template load_tile<NV>(p_, p_.query, queries, tile.queries, p_.head_dim, p_.scale,
                                 scratch_, tile_at(query_tiles_, p_.head_dim, t));
    if (asks_logits_) {
      Math::template load_tile<NV>(p_, g_.output_gradient, output_gradients, tile.queries,
                                   p_.value_dim, 1.0, scratch_,
                                   tile_at(output_tiles_, p_.value_dim, t));
    }
    if (g_.key.data != nullptr) {
      Math::stage_right(p_, p_.query, queries, tile.queries, p_.head_dim,
                        rows_at(query_rows_, p_.head_dim, t));
    }
    if (g_.value.data != nullptr) {
      Math::stage_right(p_, g_.output_gradient, output_gradients, tile.queries, p_.value_dim,
                        rows_at(output_rows_, p_.value_dim, t));
    }
    tile.skips_blocked = load_statistics<T, kWidth>(p_, g_, b_, h_, tile.query, tile.queries,
                                                    asks_logits_, statistics_.from(t * kWidth));
  }

  static Number* tile_at(Number* tiles, int64_t columns, int t) {
    return tiles + t * Math::row_numbers(columns) * kWidth;
  }
  static Number* rows_at(Number* rows, int64_t columns, int t) {
    return rows + t * Math::right_rows(kWidth) * Math::right_row(columns);
  }

  Block block_at(int64_t key, int64_t n) {
    const void* keys = element_at(p_.key, key_head_, key);
    const void* values = element_at(p_.value, key_head_, key);
    Block block = {static_cast<const Number*>(keys), p_.key.row, static_cast<const Number*>(values),
                   p_.value.row};
    if (!keys_in_place_) {
      Math::stage_rows(p_, p_.key, keys, n, p_.head_dim, keys_);
      block.keys = keys_;
      block.key_row = Math::row_numbers(p_.head_dim);
    }
    if (!values_in_place_ && asks_logits_) {
      Math::stage_rows(p_, p_.value, values, n, p_.value_dim, values_);
      block.values = values_;
      block.value_row = Math::row_numbers(p_.value_dim);
    }
    if constexpr (Math::kPairsKeys) {
      if (g_.query.data != nullptr) {
        Math::stage_pairs(p_.key, keys, n, p_.head_dim, key_pairs_, 2 * p_.head_dim);
      }
    }
    return block;
  }

  /// Adds what the tiles give to the gradients of one block of keys, and it to theirs.
  void absorb(int64_t key, RowSums<Math>& key_sums, RowSums<Math>& value_sums,
              BiasSums<T>& bias_sums) {
    const int64_t n = std::min<int64_t>(kGradientBlock, last_ - key);
    KeyRange ranges[kTiles];
    bool staged = false;
    Block block = {};
    for (int t = 0; t < tiles_in_use_; ++t) {
      Tile& tile = tiles_[t];
      ranges[t] = visible_keys(masks_, tile.query, tile.queries, key, n, *open_,
                               [&] { return tile.skips_blocked; });
      if (ranges[t].n == 0) continue;
      if (!staged) block = block_at(key, n);
      staged = true;
      multiply(tile, t, key, block, ranges[t], bias_sums);
    }
    if (!staged) return;
    for (int64_t j = 0; j < n; j += kGroup) {
      TileFactor<Number> to_values[kTiles];
      TileFactor<Number> to_keys[kTiles];
      int count = 0;
      for (int t = 0; t < tiles_in_use_; ++t) {
        const KeyRange range = ranges[t];
        if (j < range.first || j >= range.first + range.n) continue;
        const int64_t left = (j - range.first) * kWidth;
        const int64_t right_rows = Math::right_rows(tiles_[t].queries);
        to_values[count] = {Math::rounded(weights_at(t)) + left,
                            rows_at(output_rows_, p_.value_dim, t), right_rows};
        to_keys[count] = {Math::rounded(gradients_at(t)) + left,
                          rows_at(query_rows_, p_.head_dim, t), right_rows};
        ++count;
      }
      if (count == 0) continue;
      const int64_t keys = std::min<int64_t>(kGroup, n - j);
      if (value_sums.asked()) value_sums.template add<kWidth>(to_values, count, key + j, keys);
      if (key_sums.asked()) key_sums.template add<kWidth>(to_keys, count, key + j, keys);
    }
  }

  T* weights_at(int t) const { return weights_ + t * kGradientBlock * kWidth; }
  T* gradients_at(int t) const { return gradients_ + t * kGradientBlock * kWidth; }

  /// The weights of one tile and a range of keys, the gradients of their logits, and what the latter
  /// give to the gradients of the tile's queries and of the bias.
  HWY_INLINE void multiply(Tile& tile, int t, int64_t block_key, const Block& block, KeyRange range,
                           BiasSums<T>& bias_sums) {
    const Tag<T> d;
    const int64_t key = block_key + range.first;
    T* weights = weights_at(t);
    T* gradients = gradients_at(t);
    Vec<T> ignored[NV];
    for (int v = 0; v < NV; ++v) ignored[v] = hn::Zero(d);

    if (bias_.any()) bias_.prefetch(tile.query, tile.queries, key, range.n);
    if (bias_sums.asked()) {
      bias_sums.prefetch(h_ % (p_.heads / p_.key_heads), tile.query, tile.queries, key, range.n);
    }
    Math::template logits<NV>(block.keys + range.first * block.key_row, block.key_row, range.n,
                              tile_at(query_tiles_, p_.head_dim, t), p_.head_dim, p_.scale,
                              weights);
    if (asks_logits_) {
      Math::template logits<NV>(block.values + range.first * block.value_row, block.value_row,
                                range.n, tile_at(output_tiles_, p_.value_dim, t), p_.value_dim, 1.0,
                                gradients);
    }
    if (p_.squash != Squash::kNone) {
      squash(p_, range.n * kWidth, weights);
      squash_slope(p_, range.n * kWidth, weights, slope_);
    }
    if (bias_.any()) {
      bias_.template add<NV>(tile.query, tile.queries, key, range.n, scratch_, weights, ignored);
    }
    if (dropout_.any()) dropout_.template draw<T, NV>(tile.query, key, range.n, *kept_);

    // Where the gradient of the logit itself is wanted, the scale comes later.
    const bool scale_later = p_.squash != Squash::kNone || bias_sums.asked();
    const T scale = static_cast<T>(p_.scale);
    to_gradients(t, range, scale_later ? T(1) : scale, weights, gradients);
    Math::template round_weights<NV>(range.n, weights);
    if (!asks_logits_) return;
    if (bias_sums.asked()) {
      bias_sums.template add<NV>(h_ % (p_.heads / p_.key_heads), tile.query, tile.queries, key,
                                 range.n, gradients, scratch_);
    }
    if (scale_later) {
      const Vec<T> factor = hn::Set(d, scale);
      for (int64_t i = 0; i < range.n * kWidth; i += kLanes<T>) {
        Vec<T> gradient = hn::Mul(factor, hn::Load(d, gradients + i));
        if (p_.squash != Squash::kNone) gradient = hn::Mul(gradient, hn::Load(d, slope_ + i));
        hn::Store(gradient, d, gradients + i);
      }
    }
    Math::template round_gradients<NV>(range.n, gradients, gradient_pairs_);
    if (g_.query.data == nullptr) return;
    Vec<T> ones[NV];
    for (int v = 0; v < NV; ++v) ones[v] = hn::Set(d, T(1));
    T* sums = query_gradients_ + t * p_.head_dim * kWidth;
    if constexpr (Math::kPairsKeys) {
      Math::template output<NV>(key_pairs_ + range.first * p_.head_dim, p_.head_dim, range.n,
                                p_.head_dim, reinterpret_cast<const T*>(gradient_pairs_), ones,
                                tile.fresh, sums);
    } else {
      Math::template output<NV>(block.keys + range.first * block.key_row, block.key_row, range.n,
                                p_.head_dim, gradients, ones, tile.fresh, sums);
    }
    tile.fresh = false;
  }

  /// Logits become weights, the products of output gradient and values the gradients of the logits,
  /// times `factor`.
  HWY_INLINE void to_gradients(int t, KeyRange range, T factor, T* HWY_RESTRICT weights,
                               T* HWY_RESTRICT gradients) {
    const LogitGradients<T, NV> step(p_, factor, statistics_.from(t * kWidth));
    for (int64_t j = 0; j < range.n; j += kGroup) {
      const int64_t g = (range.first + j) / kGroup;
      const bool mixed = range.masked && open_->kinds[g] != Open::kOpen;
      // A bias of −∞ is a mask, too.
      const auto* open = mixed ? open_->words[g] : bias_.any() ? all_open_ : nullptr;
      const auto* kept = dropout_.any() ? kept_->words[j / kGroup] : nullptr;
      step.to_gradients(open, kept, std::min<int64_t>(kGroup, range.n - j), weights + j * kWidth,
                        gradients + j * kWidth);
    }
  }

  /// Writes the gradients of the queries, or leaves them for the sum over the parts.
  void finish() {
    if (g_.query.data == nullptr) return;
    HWY_ALIGN T ones[kWidth];
    std::fill_n(ones, kWidth, T(1));
    for (int t = 0; t < tiles_in_use_; ++t) {
      const Tile& tile = tiles_[t];
      T* sums = query_gradients_ + t * p_.head_dim * kWidth;
      if (tile.fresh) std::fill_n(sums, p_.head_dim * kWidth, T(0));
      if ((masks_.any() || bias_.any()) && !all_finite(sums, p_.head_dim * kWidth)) {
        mend(tile, sums);
      }
      if (query_sums_ != nullptr) {
        tile_to_rows<NV>(sums, ones, tile.queries, p_.head_dim,
                         query_sums_ + tile.query * p_.head_dim, p_.head_dim);
        continue;
      }
      const GradientView& to = g_.query;
      store_tile<NV>(p_.element, sums, ones, tile.queries, p_.head_dim, scratch_,
                     static_cast<char*>(to.data) +
                         (b_ * to.batch + h_ * to.head + tile.query * to.row) * size_of(p_.element),
                     to.row);
    }
  }

  /// Computes rows that are not finite again, so that NaN or ∞ in keys that a mask hides stay there.
  HWY_NOINLINE void mend(const Tile& tile, T* sums) {
    for (int64_t i = 0; i < tile.queries; ++i) {
      if (lane_is_finite(sums + i, p_.head_dim, kWidth)) continue;
      careful_query_gradient(p_, g_, b_, h_, tile.query + i, first_, last_, careful_);
      for (int64_t x = 0; x < p_.head_dim; ++x) {
        sums[x * kWidth + i] = static_cast<T>(careful_[x]);
      }
    }
  }

  const Problem& p_;
  const Gradients& g_;
  const int64_t b_, h_, key_head_, first_, last_;
  T* const query_sums_;
  const bool asks_logits_, keys_in_place_, values_in_place_;
  const RowMasks masks_;
  const RowBias bias_;
  const RowDropout dropout_;
  Tile tiles_[kTiles];
  int tiles_in_use_ = 0;
  Number* query_tiles_;
  Number* output_tiles_;  ///< of the output's gradient, as its rows
  Number* query_rows_;
  Number* output_rows_;
  T* query_gradients_;
  T* weights_;
  T* gradients_;
  QueryStatistics<T> statistics_;
  T* scratch_;
  Open* open_;
  typename Open::Word* all_open_;
  Kept* kept_ = nullptr;
  T* slope_ = nullptr;
  double* careful_;
  Number* keys_ = nullptr;
  Number* values_ = nullptr;
  Number* key_pairs_ = nullptr;
  Number* gradient_pairs_ = nullptr;
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_GRADIENTS_INL_H_
