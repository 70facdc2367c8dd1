#pragma once

#include <ATen/core/Tensor.h>
#include <attn/export.h>

namespace attn {

/// Which keys a query may attend to, with the polarity and the alignment in the name of the maker.
///
/// Masks combine with `&`: a key is open where every part leaves it open, and additive biases sum
/// up.
///
///     attn::Mask::causal() & attn::Mask::attend(is_real_token)   // [B, 1, 1, S], true = attend
///
/// Tensors are 2-D [L, S] or 4-D [B|1, H|1, L|1, S|1]; the rank decides, never the sizes. A maker
/// throws `c10::Error` for another rank or dtype, `attention` for sizes that do not broadcast.
class ATTN_API Mask {
 public:
  /// Every query attends to every key.
  static Mask none();
  /// Query i attends to keys j ≤ i, both counted from the start (top-left aligned, also when L ≠
  /// S).
  static Mask causal();
  /// Query i attends to keys j ≤ i + S − L: the last query sees every key (a decoder behind a key
  /// cache).
  static Mask causal_bottom_right();
  /// Bool tensor: true takes part in attention.
  static Mask attend(const at::Tensor& open);
  /// Bool tensor: true is blocked.
  static Mask block(const at::Tensor& blocked);
  /// Floating tensor that is added to the logits; −∞ blocks a key.
  static Mask bias(const at::Tensor& bias);

  /// Open where both are open; biases are added.
  friend ATTN_API Mask operator&(const Mask& a, const Mask& b);

  /// True when nothing is masked and nothing is added.
  bool is_none() const;
  bool is_causal() const { return causal_; }
  bool is_causal_bottom_right() const { return causal_bottom_right_; }
  /// The tensor of `attend` (all of them, combined), undefined if there is none.
  const at::Tensor& attend_tensor() const { return attend_; }
  /// The tensor of `block` (all of them, combined), undefined if there is none.
  const at::Tensor& block_tensor() const { return block_; }
  /// The tensor of `bias` (their sum), undefined if there is none.
  const at::Tensor& bias_tensor() const { return bias_; }

 private:
  bool causal_ = false;
  bool causal_bottom_right_ = false;
  at::Tensor attend_;
  at::Tensor block_;
  at::Tensor bias_;
};

}  // namespace attn
