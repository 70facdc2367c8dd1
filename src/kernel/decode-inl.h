// Decoding: few queries against many keys, where reading K and V is all that counts.
//
// Here the lanes run over the features of one key. The query heads of a group, which read the same
// keys, are worked on together, so that K and V stream by once; software prefetch runs ahead. Keys are
// cut into chunks by their number alone, and the chunks' results are merged in their order.

#if defined(ATTN_KERNEL_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_DECODE_INL_H_
#undef ATTN_KERNEL_DECODE_INL_H_
#else
#define ATTN_KERNEL_DECODE_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernel/bias-inl.h"
#include "kernel/careful.h"
#include "kernel/decode_products-inl.h"
#include "kernel/elements-inl.h"
#include "kernel/logsumexp.h"
#include "kernel/mask-inl.h"
#include "kernel/space.h"
#include "kernel/squash-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Keys of a task.
constexpr int64_t kChunk = 512;

/// Whether decoding is the faster way; as all of a plan, it depends on shapes and strides alone, and on
/// whether there is dropout, which is made for lanes of queries.
inline bool suits_decoding(const Problem& p) {
  return p.queries > 0 && p.queries <= 2 && p.keys > 0 && p.key.column == 1 &&
         p.value.column == 1 && p.dropped == 0;
}

/// The queries of one key head: rows are the group's heads times L queries.
template <class Products>
class Decoder {
  using T = typename Products::Sum;
  using E = typename Products::Element;
  using Query = typename Products::Query;

 public:
  static int64_t chunks(const Problem& p) { return (p.keys + kChunk - 1) / kChunk; }

  static Plan plan(const Problem& p) {
    Space space(nullptr);
    Decoder measured(p, 0, 0, space);
    Plan plan;
    plan.merges = p.batches * p.key_heads;
    plan.tasks = plan.merges * chunks(p);
    plan.workspace_bytes = space.bytes();
    plan.partials_bytes = plan.tasks * measured.partial_numbers() * static_cast<int64_t>(sizeof(T));
    return plan;
  }

  Decoder(const Problem& p, int64_t b, int64_t key_head, Space& space)
      : p_(p),
        b_(b),
        key_head_(key_head),
        group_(p.heads / p.key_heads),
        rows_(group_ * p.queries),
        query_stride_(round_up(p.head_dim, Products::kQueryLanes)),
        keys_(head_of<E>(p.key, b, key_head)),
        values_(head_of<E>(p.value, b, key_head)) {
    queries_ = space.take<Query>(rows_ * query_stride_);
    logits_ = space.take<T>(rows_ * kDecodeBlock);
    bias_ = space.take<T>(kDecodeBlock);
    row_ = space.take<T>(round_up(p.value_dim, kLanes<T>));
    tops_ = space.take<T>(rows_);
    factors_ = space.take<T>(rows_);
    careful_ = space.take<double>(p.value_dim);
    open_ = space.take<OpenKeys<T, 1>>(rows_);
  }

  /// Attention to one chunk of the keys, into its partial: for each row the largest logit, the sum of
  /// the weights relative to it, and the weighted sum of the values.
  void run(int64_t chunk, T* partials) {
    load_queries();
    T* partial = partials + chunk * partial_numbers();
    for (int64_t r = 0; r < rows_; ++r) {
      T* state = partial + r * row_numbers();
      std::fill_n(state, row_numbers(), T(0));
      state[0] = kLowest<T>;
    }
    const int64_t end = std::min(p_.keys, (chunk + 1) * kChunk);
    for (int64_t key = chunk * kChunk; key < end; key += kDecodeBlock) {
      const int64_t n = std::min<int64_t>(kDecodeBlock, end - key);
      if (!final_logits(key, n)) continue;
      for (int64_t r = 0; r < rows_; ++r)
        to_weights(logits_ + r * kDecodeBlock, partial + r * row_numbers());
      add_values(key, n, partial);
    }
  }

  /// Where the partials of the n-th key head of all batches lie.
  T* partials_of(int64_t n, void* partials) const {
    return static_cast<T*>(partials) + n * chunks(p_) * partial_numbers();
  }

  /// Combines the chunks, in their order.
  void merge(const T* partials) {
    for (int64_t r = 0; r < rows_; ++r) {
      const T* states = partials + r * row_numbers();
      T top = kLowest<T>;
      for (int64_t c = 0; c < chunks(p_); ++c) top = std::max(top, states[c * partial_numbers()]);
      T sum = 0;
      std::fill_n(row_, p_.value_dim, T(0));
      for (int64_t c = 0; c < chunks(p_); ++c) {
        const T* state = states + c * partial_numbers();
        const T decay = std::exp(state[0] - top);
        sum += decay * state[1];
        for (int64_t x = 0; x < p_.value_dim; ++x) row_[x] += decay * state[2 + x];
      }
      finish(r, top, sum);
    }
    if (p_.weights != nullptr) write_weights();
  }

 private:
  static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
  int64_t row_numbers() const { return 2 + p_.value_dim; }
  int64_t partial_numbers() const { return rows_ * row_numbers(); }
  int64_t head_of_row(int64_t r) const { return key_head_ * group_ + r / p_.queries; }

  void load_queries() {
    for (int64_t r = 0; r < rows_; ++r) {
      Query* to = queries_ + r * query_stride_;
      const E* from = head_of<E>(p_.query, b_, head_of_row(r)) + r % p_.queries * p_.query.row;
      Products::load_query(p_, from, to);
      std::fill(to + p_.head_dim, to + query_stride_, Query{});
    }
  }

  /// Logits of the keys [key, key + n) after squash, bias and mask, and −∞ up to kDecodeBlock.
  /// False where all of them are −∞ for a mask's sake.
  bool final_logits(int64_t key, int64_t n) {
    if (!read_masks(key, n)) return false;
    int64_t r = 0;
    for (; r + 4 <= rows_ && kDecodeRows >= 4; r += 4) products<4>(r, key, n);
    for (; r + 2 <= rows_; r += 2) products<2>(r, key, n);
    if (r < rows_) products<1>(r, key, n);
    for (r = 0; r < rows_; ++r) modify(r, key, n);
    return true;
  }

  bool read_masks(int64_t key, int64_t n) {
    bool any = false;
    for (int64_t r = 0; r < rows_; ++r) {
      const RowMasks masks(p_, b_, head_of_row(r));
      if (!masks.any()) return true;
      OpenKeys<T, 1>& open = open_[r];
      masks.read(r % p_.queries, 1, key, n, open);
      for (int64_t g = 0; g * kGroup < n; ++g) any |= open.kinds[g] != OpenKeys<T, 1>::kBlocked;
    }
    return any || p_.masked_score != -std::numeric_limits<double>::infinity();
  }

  template <int R>
  HWY_INLINE void products(int64_t first_row, int64_t key, int64_t n) {
    Products::template logits<R>(p_, keys_ + key * p_.key.row, n,
                                 queries_ + first_row * query_stride_, query_stride_,
                                 /*prefetch=*/first_row == 0, logits_ + first_row * kDecodeBlock);
  }

  HWY_INLINE void modify(int64_t r, int64_t key, int64_t n) {
    const int64_t query = r % p_.queries;
    T* logits = logits_ + r * kDecodeBlock;
    if (p_.squash != Squash::kNone) squash(p_, kDecodeBlock, logits);
    const RowBias bias(p_, b_, head_of_row(r));
    if (bias.any()) {
      bias.load(query, key, n, bias_);
      for (int64_t j = 0; j < n; ++j) {
        const bool blocks = bias_[j] == -std::numeric_limits<T>::infinity();
        logits[j] = blocks ? bias_[j] : logits[j] + bias_[j];
      }
    }
    if (RowMasks(p_, b_, head_of_row(r)).any()) {
      for (int64_t j = 0; j < n; ++j) {
        const bool sees = (open_[r].words[j / kGroup][0] >> j % kGroup & 1) != 0;
        if (!sees) logits[j] = static_cast<T>(p_.masked_score);
      }
    }
    std::fill(logits + n, logits + kDecodeBlock, -std::numeric_limits<T>::infinity());
  }

  /// Turns kDecodeBlock logits into weights relative to the largest so far, and rescales the state.
  HWY_INLINE void to_weights(T* HWY_RESTRICT logits, T* HWY_RESTRICT state) {
    const Tag<T> d;
    Vec<T> top = hn::Set(d, state[0]);
    for (int j = 0; j < kDecodeBlock; j += kLanes<T>) top = hn::Max(top, hn::Load(d, logits + j));
    top = hn::MaxOfLanes(d, top);
    const T decay = hn::GetLane(exp(d, hn::Sub(hn::Set(d, state[0]), top)));
    Vec<T> sum = hn::Zero(d);
    for (int j = 0; j < kDecodeBlock; j += kLanes<T>) {
      const Vec<T> weight = exp(d, hn::Sub(hn::Load(d, logits + j), top));
      hn::Store(weight, d, logits + j);
      sum = hn::Add(sum, weight);
    }
    state[0] = hn::GetLane(top);
    state[1] = state[1] * decay + hn::GetLane(hn::SumOfLanes(d, sum));
    if (decay != T(1)) {
      for (int64_t x = 0; x < p_.value_dim; ++x) state[2 + x] *= decay;
    }
  }

  HWY_INLINE void add_values(int64_t key, int64_t n, T* partial) {
    int64_t r = 0;
    for (; r + 4 <= rows_ && kDecodeRows >= 4; r += 4) add_values_of<4>(r, key, n, partial);
    for (; r + 2 <= rows_; r += 2) add_values_of<2>(r, key, n, partial);
    if (r < rows_) add_values_of<1>(r, key, n, partial);
  }

  template <int R>
  HWY_INLINE void add_values_of(int64_t first_row, int64_t key, int64_t n, T* partial) {
    Products::template output<R>(p_, values_ + key * p_.value.row, n,
                                 logits_ + first_row * kDecodeBlock, /*prefetch=*/first_row == 0,
                                 partial + first_row * row_numbers() + 2, row_numbers());
  }

  /// Divides row_ by the sum, rounds, and writes it.
  void finish(int64_t r, T top, T sum) {
    const int64_t h = head_of_row(r);
    const int64_t query = r % p_.queries;
    const T nothing = p_.nan_when_fully_masked ? std::numeric_limits<T>::quiet_NaN() : T(0);
    tops_[r] = top;
    factors_[r] = sum == T(0) ? nothing : T(1) / sum;
    bool finite = true;
    for (int64_t x = 0; x < p_.value_dim; ++x) {
      finite = finite && std::isfinite(row_[x]);
      row_[x] *= factors_[r];
    }
    if (!finite && (RowMasks(p_, b_, h).any() || RowBias(p_, b_, h).any())) {
      careful_row(p_, b_, h, query, careful_);
      std::copy_n(careful_, p_.value_dim, row_);
    }
    store_row(row_, p_.value_dim,
              static_cast<E*>(p_.output) + b_ * p_.output_batch + h * p_.output_head +
                  query * p_.output_row);
    store_logsumexp(p_, (b_ * p_.heads + h) * p_.queries + query, top, sum);
  }

  /// A second pass over the keys: weights are known only when all logits are.
  void write_weights() {
    const Tag<T> d;
    load_queries();
    for (int64_t key = 0; key < p_.keys; key += kDecodeBlock) {
      const int64_t n = std::min<int64_t>(kDecodeBlock, p_.keys - key);
      if (!final_logits(key, n)) {
        std::fill_n(logits_, rows_ * kDecodeBlock, -std::numeric_limits<T>::infinity());
      }
      for (int64_t r = 0; r < rows_; ++r) {
        T* logits = logits_ + r * kDecodeBlock;
        for (int j = 0; j < kDecodeBlock; j += kLanes<T>) {
          const Vec<T> weight = exp(d, hn::Sub(hn::Load(d, logits + j), hn::Set(d, tops_[r])));
          hn::Store(hn::Mul(weight, hn::Set(d, factors_[r])), d, logits + j);
        }
        const int64_t index = (b_ * p_.heads + head_of_row(r)) * p_.queries + r % p_.queries;
        store_row(logits, n, static_cast<E*>(p_.weights) + index * p_.keys + key);
      }
    }
  }

  const Problem& p_;
  const int64_t b_, key_head_, group_, rows_, query_stride_;
  const E* const keys_;
  const E* const values_;
  Query* queries_;
  T* logits_;
  T* bias_;
  T* row_;
  T* tops_;     ///< when all chunks are merged
  T* factors_;  ///< 1 / sum of the weights
  double* careful_;
  OpenKeys<T, 1>* open_;
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_DECODE_INL_H_
