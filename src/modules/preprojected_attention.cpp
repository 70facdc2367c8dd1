#include "modules/preprojected_attention.h"

#include <cmath>

#include "functional/checks.h"
#include "functional/heads.h"
#include "functional/linear.h"
#include "functional/select.h"
#include "modules/attention_score.h"

namespace attn {

void check_options(std::string_view module, const ProjectedMultiheadAttentionOptions& options) {
  check_positive(module,
                 {{"embedding_dim", options.embedding_dim()}, {"n_heads", options.n_heads()}});
  check_divisible(module, {"embedding_dim", options.embedding_dim()},
                  {"n_heads", options.n_heads()});
}

int64_t check_batch(std::string_view module, std::string_view name, const at::Tensor& tensor,
                    std::string_view from, int64_t batch) {
  const int64_t own = tensor.size(0);
  TORCH_CHECK(own == batch || own == 1 || batch == 1, "[", module, "] ", name, " batch: expected ",
              batch, " (from ", from, ") or 1, got ", own);
  return batch == 1 ? own : batch;
}

at::Tensor preprojected_attention(const ProjectedMultiheadAttentionOptions& options,
                                  const PreprojectedMultiheadAttentionImpl& mha,
                                  const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value, const Mask& mask) {
  const int64_t heads = options.n_heads();
  const auto head_dim = static_cast<double>(options.embedding_dim() / heads);
  const AttentionResult result = run({.query = split_heads(query, heads),
                                      .key = split_heads(key, heads),
                                      .value = split_heads(value, heads),
                                      .divisor = std::sqrt(head_dim),
                                      .logit_clip = logit_clip(mha.attentionScore->options),
                                      .mask = mask,
                                      .fully_masked = options.fully_masked(),
                                      .spelling = Spelling::kMatmulHeadsFirst});
  return project(mha.project_out, merge_heads(result.output));  // [B, L, E]
}

void print_options(std::ostream& stream, std::string_view module,
                   const ProjectedMultiheadAttentionOptions& options) {
  stream << "attn::" << module << "(embedding_dim=" << options.embedding_dim()
         << ", n_heads=" << options.n_heads();
  if (options.fully_masked() == FullyMasked::kZero) stream << ", fully_masked=zero";
  stream << ")";
}

torch::nn::Linear square_map(int64_t dim) {
  return torch::nn::Linear(torch::nn::LinearOptions(dim, dim).bias(false));
}

}  // namespace attn
