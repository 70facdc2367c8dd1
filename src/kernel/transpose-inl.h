// Between rows in memory and tiles with the queries in the lanes: tile[column][lane] = rows[lane][column].

#if defined(ATTN_KERNEL_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KERNEL_TRANSPOSE_INL_H_
#undef ATTN_KERNEL_TRANSPOSE_INL_H_
#else
#define ATTN_KERNEL_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernel/attention.h"
#include "kernel/elements-inl.h"
#include "kernel/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernel::HWY_NAMESPACE {

/// Whether so many rows, `stride` numbers apart, would evict each other from an L1 cache of 64 sets and
/// 8 ways: rows a multiple of a large power of two apart share few sets.
template <class T>
HWY_INLINE bool rows_collide(int64_t rows, int64_t stride) {
  const int64_t sets = 64;
  const int64_t distance = stride * static_cast<int64_t>(sizeof(T)) | sets * kAlignment;
  const int64_t power = distance & -distance;  // the largest power of two that divides it
  return rows > 8 * std::min(sets, sets * kAlignment / power);
}

/// A vector whose block b holds the numbers at `from` of row + b · kBlock; rows after `last` repeat it.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_blocks(D d, const T* from, int64_t stride, int64_t row, int64_t last) {
  if constexpr (hn::MaxLanes(D()) <= kBlock<T>) {
    return hn::LoadU(d, from + std::min(row, last) * stride);
  } else {
    const hn::Half<D> half;
    const int64_t upper = row + static_cast<int64_t>(hn::MaxLanes(half));
    return hn::Combine(d, load_blocks(half, from, stride, upper, last),
                       load_blocks(half, from, stride, row, last));
  }
}

/// The inverse; rows from `rows` on are left out.
template <class D, class T>
HWY_INLINE void store_blocks(D d, hn::Vec<D> v, T* to, int64_t stride, int64_t row, int64_t rows) {
  if constexpr (hn::MaxLanes(D()) <= kBlock<T>) {
    if (row < rows) hn::StoreU(v, d, to + row * stride);
  } else {
    const hn::Half<D> half;
    const int64_t upper = row + static_cast<int64_t>(hn::MaxLanes(half));
    store_blocks(half, hn::LowerHalf(half, v), to, stride, row, rows);
    store_blocks(half, hn::UpperHalf(half, v), to, stride, upper, rows);
  }
}

/// Rows [rows][columns] to a tile [columns][NV vectors], times `scale` unless kKeepBits. Lanes
/// without a row repeat the last one, so that what they compute is harmless.
template <int NV, bool kKeepBits, class T, class Count>
HWY_INLINE void rows_to_tile_of(const T* HWY_RESTRICT from, int64_t stride, Count rows,
                                int64_t columns, T scale, T* HWY_RESTRICT tile) {
  const Tag<T> d;
  constexpr int kWidth = NV * kLanes<T>;
  const Vec<T> factor = hn::Set(d, scale);
  int64_t column = 0;
  for (; column + kBlock<T> <= columns; column += kBlock<T>) {
    for (int v = 0; v < NV; ++v) {
      Vec<T> block[kBlock<T>];
      for (int k = 0; k < kBlock<T>; ++k) {
        block[k] = load_blocks(d, from + column, stride, v * kLanes<T> + k, rows - 1);
      }
      transpose_blocks(d, block);
      for (int k = 0; k < kBlock<T>; ++k) {
        if constexpr (!kKeepBits) block[k] = hn::Mul(block[k], factor);
        hn::Store(block[k], d, tile + (column + k) * kWidth + v * kLanes<T>);
      }
    }
  }
  for (; column < columns; ++column) {
    for (int64_t i = 0; i < kWidth; ++i) {
      const T number = from[std::min<int64_t>(i, rows - 1) * stride + column];
      tile[column * kWidth + i] = kKeepBits ? number : number * scale;
    }
  }
}

/// A tile [columns][NV vectors], each lane times its factor, to rows [rows][columns].
template <int NV, class T, class Count>
HWY_INLINE void tile_to_rows_of(const T* HWY_RESTRICT tile, const T* HWY_RESTRICT factors,
                                Count rows, int64_t columns, T* HWY_RESTRICT to, int64_t stride) {
  const Tag<T> d;
  constexpr int kWidth = NV * kLanes<T>;
  Vec<T> factor[NV];
  for (int v = 0; v < NV; ++v) factor[v] = hn::LoadU(d, factors + v * kLanes<T>);
  int64_t column = 0;
  for (; column + kBlock<T> <= columns; column += kBlock<T>) {
    for (int v = 0; v < NV; ++v) {
      Vec<T> block[kBlock<T>];
      for (int k = 0; k < kBlock<T>; ++k) {
        block[k] = hn::Mul(factor[v], hn::Load(d, tile + (column + k) * kWidth + v * kLanes<T>));
      }
      transpose_blocks(d, block);
      for (int k = 0; k < kBlock<T>; ++k) {
        store_blocks(d, block[k], to + column, stride, v * kLanes<T> + k, rows);
      }
    }
  }
  for (; column < columns; ++column) {
    for (int64_t i = 0; i < rows; ++i) {
      to[i * stride + column] = tile[column * kWidth + i] * factors[i];
    }
  }
}

/// The number of a full tile's rows, known to the compiler, which then tests none of them.
template <int NV, class T>
using AllRows = std::integral_constant<int64_t, NV * kLanes<T>>;

template <int NV, bool kKeepBits, class T>
HWY_INLINE void rows_to_tile(const T* from, int64_t stride, int64_t rows, int64_t columns, T scale,
                             T* tile) {
  using All = AllRows<NV, T>;
  if (rows == All::value) {
    rows_to_tile_of<NV, kKeepBits>(from, stride, All(), columns, scale, tile);
  } else {
    rows_to_tile_of<NV, kKeepBits>(from, stride, rows, columns, scale, tile);
  }
}

template <int NV, class T>
HWY_INLINE void tile_to_rows(const T* tile, const T* factors, int64_t rows, int64_t columns, T* to,
                             int64_t stride) {
  using All = AllRows<NV, T>;
  if (rows == All::value) {
    tile_to_rows_of<NV>(tile, factors, All(), columns, to, stride);
  } else {
    tile_to_rows_of<NV>(tile, factors, rows, columns, to, stride);
  }
}

/// A tile, each lane times its factor, to rows of elements, by way of `scratch` [rows][columns] where
/// they are of another type or would evict each other.
template <int NV, class T>
HWY_INLINE void store_tile(Element element, const T* tile, const T* factors, int64_t rows,
                           int64_t columns, T* scratch, void* to, int64_t to_row) {
  if (size_of(element) == sizeof(T) && !rows_collide<T>(rows, to_row)) {
    tile_to_rows<NV>(tile, factors, rows, columns, static_cast<T*>(to), to_row);
  } else {
    tile_to_rows<NV>(tile, factors, rows, columns, scratch, columns);
    store_rows(element, scratch, columns, rows, columns, to, to_row);
  }
}

}  // namespace attn::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ATTN_KERNEL_TRANSPOSE_INL_H_
