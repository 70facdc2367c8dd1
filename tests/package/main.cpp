#include <ATen/ops/randn.h>
#include <attn/attn.h>

#include <iostream>

/// Usage: consumer WEIGHTS, a file with the weights of a causal module of 8 features.
int main(int argc, char** argv) {
  if (argc != 2) return 2;

  attn::CausalMultiheadAttention layer(8, 2);
  const attn::LoadReport report = attn::load_weights(layer, argv[1]);
  const at::Tensor x = at::randn({3, 5, 8});
  std::cout << layer << ": " << report.loaded.size() << " tensors loaded, output "
            << layer(x).sizes() << "\n";

  const at::Tensor heads = at::randn({3, 2, 5, 4});
  const auto options = attn::AttentionOptions().mask(attn::Mask::causal());
  const attn::AttentionResult result = attn::attention(heads, heads, heads, options);
  std::cout << "attn " << ATTN_VERSION << ", backend " << result.backend << ", output "
            << result.output.sizes() << "\n";
}
