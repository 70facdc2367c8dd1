// From the logits of a tile of queries to their weights and gradients, number by number, and what this
// takes from each query.

#if defined(ATTN_KERNEL_LOGIT_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_LOGIT_GRADIENTS_INL_H_
#undef ATTN_KERNEL_LOGIT_GRADIENTS_INL_H_
#else
#define ATTN_KERNEL_LOGIT_GRADIENTS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "kernel/dropout-inl.h"
#include "kernel/elements-inl.h"
#include "kernel/mask-inl.h"
#include "kernel/space.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// What the gradients of a query's logits depend on, beside the logits.
template <class T>
struct QueryStatistics {
  QueryStatistics() = default;
  QueryStatistics(int64_t queries, Space& space) {
    for (T** row : {&logsumexp, &rest, &delta}) *row = space.take<T>(queries);
  }

  /// Those of the queries from the n-th on.
  QueryStatistics from(int64_t n) const {
    QueryStatistics later = *this;
    for (T** row : {&later.logsumexp, &later.rest, &later.delta}) *row += n;
    return later;
  }

  T* logsumexp = nullptr;
  T* rest = nullptr;   ///< what rounding took from it
  T* delta = nullptr;  ///< dO · O − the gradient of the log-sum-exp
};

/// The products of the outputs of queries and their gradients.
template <class E, class T>
HWY_INLINE void output_products(const Problem& p, const Gradients& g, int64_t b, int64_t h,
                                int64_t query, int64_t queries, T* HWY_RESTRICT delta) {
  const Tag<T> d;
  const E* output = head_of<E>(g.output, b, h) + query * g.output.row;
  const E* gradient = head_of<E>(g.output_gradient, b, h) + query * g.output_gradient.row;
  const int64_t columns = p.value_dim;
  for (int64_t i = 0; i < queries; ++i) {
    int64_t x = 0;
    T total = 0;
    if (g.output.column == 1 && g.output_gradient.column == 1) {
      Vec<T> sum = hn::Zero(d);
      for (; x + kLanes<T> <= columns; x += kLanes<T>) {
        sum = hn::MulAdd(load_as(d, output + x), load_as(d, gradient + x), sum);
      }
      total = hn::GetLane(hn::SumOfLanes(d, sum));
    }
    for (; x < columns; ++x) {
      total += static_cast<T>(to_float(output[x * g.output.column])) *
               static_cast<T>(to_float(gradient[x * g.output_gradient.column]));
    }
    delta[i] = total;
    output += g.output.row;
    gradient += g.output_gradient.row;
  }
}

/// Loads the statistics of a tile's queries, delta where it is asked for. Rows that are not there, or
/// all of whose logits are −∞, get the log-sum-exp ∞, which gives them no weight. Returns whether
/// blocked keys have no weight, exactly, in any of the rows.
template <class T, int kWidth>
HWY_NOINLINE bool load_statistics(const Problem& p, const Gradients& g, int64_t b, int64_t h,
                                  int64_t query, int64_t queries, bool asks_delta,
                                  const QueryStatistics<T>& to) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  std::fill_n(to.logsumexp, kWidth, kInfinity);
  std::fill_n(to.rest, kWidth, T(0));
  std::fill_n(to.delta, kWidth, T(0));
  if (asks_delta) {
    if constexpr (sizeof(T) == sizeof(double)) {
      output_products<double>(p, g, b, h, query, queries, to.delta);
    } else if (p.element == Element::kFloat32) {
      output_products<float>(p, g, b, h, query, queries, to.delta);
    } else if (p.element == Element::kBFloat16) {
      output_products<BFloat16>(p, g, b, h, query, queries, to.delta);
    } else {
      output_products<Float16>(p, g, b, h, query, queries, to.delta);
    }
  }
  const int64_t row = (b * p.heads + h) * p.queries + query;
  bool dead_rows_are_nan = false;
  for (int64_t i = 0; i < queries; ++i) {
    const T sum = static_cast<const T*>(g.logsumexp)[row + i];
    if (sum != -kInfinity) {
      to.logsumexp[i] = sum;
    } else if (p.nan_when_fully_masked) {
      to.logsumexp[i] = std::numeric_limits<T>::quiet_NaN();
      dead_rows_are_nan = true;
    }
    if (g.logsumexp_rest != nullptr) {
      to.rest[i] = static_cast<const T*>(g.logsumexp_rest)[row + i];
    }
    if (g.logsumexp_gradient != nullptr) {
      to.delta[i] -= static_cast<const T*>(g.logsumexp_gradient)[row + i];
    }
  }
  return !dead_rows_are_nan && blocked_weigh_nothing<T>(p, to.logsumexp, kWidth);
}

/// The step from a tile's logits to their gradients, with all that does not change along the keys.
template <class T, int NV>
class LogitGradients {
  using OpenWord = typename OpenKeys<T, NV>::Word;
  using Kept = KeptKeys<T, NV>;

 public:
  HWY_INLINE LogitGradients(const Problem& p, T factor, const QueryStatistics<T>& queries) {
    const Tag<T> d;
    factor_ = hn::Set(d, factor);
    masked_score_ = hn::Set(d, static_cast<T>(p.masked_score));
    dropout_scale_ = hn::Set(d, static_cast<T>(dropout_scale(p)));
    for (int v = 0; v < NV; ++v) {
      logsumexp_[v] = hn::Load(d, queries.logsumexp + v * kLanes<T>);
      rest_[v] = hn::Load(d, queries.rest + v * kLanes<T>);
      delta_[v] = hn::Load(d, queries.delta + v * kLanes<T>);
    }
  }

  /// For the n keys of a group, logits become weights, the products of output gradient and values the
  /// gradients of the logits, times `factor`. No words of open, or kept, keys: all are.
  HWY_INLINE void to_gradients(const OpenWord* open, const typename Kept::Word* kept, int64_t n,
                               T* HWY_RESTRICT weights, T* HWY_RESTRICT gradients) const {
    if (open != nullptr && kept != nullptr) {
      group<true, true>(open, kept, n, weights, gradients);
    } else if (open != nullptr) {
      group<true, false>(open, kept, n, weights, gradients);
    } else if (kept != nullptr) {
      group<false, true>(open, kept, n, weights, gradients);
    } else {
      group<false, false>(open, kept, n, weights, gradients);
    }
  }

 private:
  template <bool kMasked, bool kDropped>
  HWY_INLINE void group(const OpenWord* open, const typename Kept::Word* kept, int64_t n,
                        T* HWY_RESTRICT weights, T* HWY_RESTRICT gradients) const {
    const Tag<T> d;
    const hn::RebindToUnsigned<Tag<T>> du;
    for (int64_t j = 0; j < n; ++j) {
      for (int v = 0; v < NV; ++v) {
        T* HWY_RESTRICT weight_at = weights + (j * NV + v) * kLanes<T>;
        T* HWY_RESTRICT gradient_at = gradients + (j * NV + v) * kLanes<T>;
        Vec<T> logit = hn::Load(d, weight_at);
        Vec<T> gradient = hn::Load(d, gradient_at);
        hn::Mask<Tag<T>> sees, keeps;
        if constexpr (kMasked) {
          const auto bit = hn::Set(du, OpenWord{1} << j);
          sees = hn::RebindMask(d, hn::TestBit(hn::Load(du, open + v * kLanes<T>), bit));
          const Vec<T> minus_infinity = hn::Set(d, -std::numeric_limits<T>::infinity());
          const auto open_logit = hn::AndNot(hn::Eq(logit, minus_infinity), sees);
          logit = hn::IfThenElse(sees, logit, masked_score_);
          sees = open_logit;
        }
        if constexpr (kDropped) {
          const auto bit = hn::Set(du, Kept::bit(j));
          keeps = hn::RebindMask(d, hn::TestBit(hn::Load(du, kept + v * kLanes<T>), bit));
          gradient = hn::IfThenElseZero(keeps, hn::Mul(gradient, dropout_scale_));
        }
        const Vec<T> weight = exp(d, hn::Sub(hn::Sub(logit, logsumexp_[v]), rest_[v]));
        gradient = hn::Mul(hn::Mul(weight, factor_), hn::Sub(gradient, delta_[v]));
        if constexpr (kMasked) gradient = hn::IfThenElseZero(sees, gradient);
        hn::Store(gradient, d, gradient_at);
        if constexpr (kDropped) {
          hn::Store(hn::IfThenElseZero(keeps, hn::Mul(weight, dropout_scale_)), d, weight_at);
        } else {
          hn::Store(weight, d, weight_at);
        }
      }
    }
  }

  Vec<T> factor_, masked_score_, dropout_scale_;
  Vec<T> logsumexp_[NV], rest_[NV], delta_[NV];
};

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_LOGIT_GRADIENTS_INL_H_
