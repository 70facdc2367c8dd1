#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <attn/attn.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 2) return 2;  // the weights of a causal layer, in any format
  // A layer that was trained in Python, with its parameters under their Python names.
  attn::CausalMultiheadAttention layer(512, 8);
  std::cout << attn::load_weights(layer, argv[1]) << "\n" << layer << "\n";
  std::cout << "layer output " << layer(at::randn({4, 96, 512})).sizes() << "\n";

  // Attention itself: four queries behind a cache of 32 keys, of which the last five are padding.
  const at::Tensor query = at::randn({2, 8, 4, 64});  // [B, H, L, D]
  const at::Tensor key = at::randn({2, 2, 32, 64});   // [B, Hk, S, D]: two key heads serve eight
  at::Tensor is_token = at::ones({2, 1, 1, 32}, at::kBool);
  is_token.narrow(-1, 27, 5).fill_(false);
  const auto mask = attn::Mask::causal_bottom_right() & attn::Mask::attend(is_token);
  const auto result = attn::attention(query, key, key, attn::AttentionOptions().mask(mask));
  std::cout << "attention output " << result.output.sizes() << " by " << result.backend << "\n";
}
