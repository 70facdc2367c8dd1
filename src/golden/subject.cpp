#include "golden/subject.h"

#include <attn/attn.h>
#include <c10/util/Exception.h>

#include <map>

namespace attn::golden {
namespace {

struct Known {
  Subject (*make)(const Case&);
  /// Of forward, the mask aside.
  std::vector<std::string> arguments;
};

at::Tensor get(const Arguments& arguments, const std::string& name) {
  return find_or(arguments, name, at::Tensor());
}

Subject make_xavier(const Case& c) {
  const auto size = [&](const char* name) { return c.options.at(name).get<int64_t>(); };
  XavierMultiheadAttention module(XavierMultiheadAttentionOptions(size("in_dim"), size("qk_dim"),
                                                                  size("v_dim"), size("out_dim"),
                                                                  size("n_heads"))
                                      .attn_dropout(c.options.value("attn_dropout", 0.0)));
  const bool need_weights = c.need_weights;
  return {module.ptr(), [module, need_weights](const Arguments& a, const at::Tensor& mask) mutable {
            const auto [output, weights] =
                module(get(a, "queries"), get(a, "keys"), get(a, "values"), mask, need_weights);
            return Outputs{output, weights};
          }};
}

Subject make_einsum(const Case& c) {
  EinsumMultiheadAttention module(c.options.at("embed_size").get<int64_t>(),
                                  c.options.at("num_heads").get<int64_t>());
  return {module.ptr(), [module](const Arguments& a, const at::Tensor& mask) mutable {
            return Outputs{module(get(a, "values"), get(a, "keys"), get(a, "query"), mask), {}};
          }};
}

Subject make_score(const Case& c) {
  AttentionScore module(AttentionScoreOptions()
                            .use_tanh(c.options.value("use_tanh", false))
                            .C(c.options.value("C", 10.0)));
  return {module.ptr(), [module](const Arguments& a, const at::Tensor& mask) mutable {
            return Outputs{module(get(a, "query"), get(a, "key"), mask), {}};
          }};
}

ProjectedMultiheadAttentionOptions projected_options(const Case& c) {
  return ProjectedMultiheadAttentionOptions(c.options.at("embedding_dim").get<int64_t>())
      .n_heads(c.options.value("n_heads", int64_t{8}));
}

Subject make_preprojected(const Case& c) {
  PreprojectedMultiheadAttention module(projected_options(c));
  return {module.ptr(), [module](const Arguments& a, const at::Tensor& mask) mutable {
            return Outputs{module(get(a, "query"), get(a, "key"), get(a, "value"), mask), {}};
          }};
}

Subject make_projected(const Case& c) {
  ProjectedMultiheadAttention module(projected_options(c));
  return {module.ptr(), [module](const Arguments& a, const at::Tensor& mask) mutable {
            return Outputs{module(get(a, "q"), get(a, "h"), mask), {}};
          }};
}

Subject make_causal(const Case& c) {
  CausalMultiheadAttention module(c.options.at("hidden_size").get<int64_t>(),
                                  c.options.at("num_heads").get<int64_t>());
  return {module.ptr(), [module](const Arguments& a, const at::Tensor&) mutable {
            return Outputs{module(get(a, "x")), {}};
          }};
}

using Function = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&);

template <Function function>
Subject make_function(const Case&) {
  return {nullptr, [](const Arguments& a, const at::Tensor&) {
            return Outputs{function(get(a, "Q"), get(a, "K"), get(a, "V")), {}};
          }};
}

Subject make_multihead_function(const Case& c) {
  const auto heads = c.options.at("num_heads").get<int64_t>();
  return {nullptr, [heads](const Arguments& a, const at::Tensor&) {
            return Outputs{multihead_masked_attention(get(a, "Q"), get(a, "K"), get(a, "V"), heads),
                           {}};
          }};
}

const std::map<std::string, Known> kKnown = {
    {"XavierMultiheadAttention", {make_xavier, {"queries", "keys", "values"}}},
    {"EinsumMultiheadAttention", {make_einsum, {"values", "keys", "query"}}},
    {"AttentionScore", {make_score, {"query", "key"}}},
    {"PreprojectedMultiheadAttention", {make_preprojected, {"query", "key", "value"}}},
    {"ProjectedMultiheadAttention", {make_projected, {"q", "h"}}},
    {"CausalMultiheadAttention", {make_causal, {"x"}}},
    {"single_head_attention", {make_function<single_head_attention>, {"Q", "K", "V"}}},
    {"single_head_masked_attention",
     {make_function<single_head_masked_attention>, {"Q", "K", "V"}}},
    {"multihead_masked_attention", {make_multihead_function, {"Q", "K", "V"}}},
};

const Known& find(const std::string& module, const std::string& where) {
  const auto known = kKnown.find(module);
  TORCH_CHECK(known != kKnown.end(), "[golden] ", where,
              ": expected the name of a module of attn, got \"", module, "\"");
  return known->second;
}

}  // namespace

const std::vector<std::string>& argument_names(const std::string& module) {
  return find(module, "module").arguments;
}

Subject make_subject(const Case& golden_case) {
  const Known& known = find(golden_case.module, "case \"" + golden_case.name + '"');
  try {
    return known.make(golden_case);
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK(false, "[golden] case \"", golden_case.name, "\", options: ", error.what());
  }
}

}  // namespace attn::golden
