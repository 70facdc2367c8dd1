#pragma once

#include <algorithm>

#include "kernel/attention.h"

namespace attn::kernel {

/// Queries whose gradients one merge finishes.
constexpr int64_t kMergeRows = 64;

/// How the gradients of a problem are cut into tasks, by shapes alone.
///
/// A unit is one key head of one batch with the query heads that read it: its sums over queries and
/// heads belong to one task. Units whose bias is the same piece of memory add to the same gradient: they
/// are the members of a cell, and a chain of them, one after another, is a task. The keys may be cut into
/// parts besides, so that few heads still make enough tasks; the query's gradient is then summed up
/// over the parts by a second round, as is a bias's over chains.
struct GradientCut {
  int64_t cells;
  int64_t members;  ///< units of a cell
  int64_t chains;   ///< tasks of a cell that share out its members
  int64_t parts;    ///< of the keys
  int64_t part_keys;
  bool share_batches;  ///< of the bias's gradient
  bool share_heads;

  struct Unit {
    int64_t batch;
    int64_t key_head;
  };

  Unit unit(const Problem& p, int64_t cell, int64_t member) const {
    if (share_heads) {
      return {share_batches ? member / p.key_heads : cell, member % p.key_heads};
    }
    return {share_batches ? member : cell / p.key_heads, cell % p.key_heads};
  }

  int64_t tasks() const { return cells * chains * parts; }
  bool has_units() const { return members > 0; }
};

inline GradientCut cut_gradients(const Problem& p, const Gradients& g) {
  constexpr int64_t kManyTasks = 32;
  constexpr int64_t kFewTasks = 8;
  constexpr int64_t kLongPart =
      2048;  // a part costs some 40 keys for loading and storing its queries
  constexpr int64_t kShortPart = 128;
  const auto pieces = [](int64_t whole, int64_t of) { return (whole + of - 1) / of; };

  GradientCut cut = {};
  const bool has_bias = g.bias.data != nullptr;
  cut.share_batches = has_bias && g.bias.batches != p.batches;
  cut.share_heads = has_bias && g.bias.heads != p.heads;
  cut.cells = (cut.share_batches ? 1 : p.batches) * (cut.share_heads ? 1 : p.key_heads);
  const int64_t units = p.batches * p.key_heads;
  if (units == 0) return cut;
  cut.members = units / cut.cells;
  cut.chains = std::min(cut.members, pieces(kManyTasks, cut.cells));

  // The number of batches must not matter: it would to the order in which dQ is summed up.
  const bool parts_collide = has_bias && g.bias.columns != p.keys;
  const int64_t parts =
      std::max({int64_t{1}, std::min(pieces(kFewTasks, p.key_heads), p.keys / kShortPart),
                std::min(pieces(kManyTasks, p.key_heads), p.keys / kLongPart)});
  cut.part_keys = parts_collide ? p.keys : pieces(pieces(p.keys, parts), kShortPart) * kShortPart;
  cut.parts = p.keys == 0 ? 1 : pieces(p.keys, cut.part_keys);
  return cut;
}

}  // namespace attn::kernel
