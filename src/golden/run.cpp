#include "golden/run.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "golden/formula.h"

namespace attn::golden {
namespace {

/// The tensor of the file if it holds one, else the formula's.
at::Tensor given_or_formula(const Golden& golden, const std::string& name, at::IntArrayRef shape,
                            int exponent) {
  const at::Tensor given = find_or(golden.tensors, name, at::Tensor());
  const Case& c = golden.golden_case;
  return given.defined() ? given : formula_tensor(name, c.seed, shape, exponent, c.dtype);
}

void fill_parameters(torch::nn::Module& module, const Golden& golden) {
  const at::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    at::Tensor parameter = item.value();
    parameter.copy_(given_or_formula(golden, "param." + item.key(), parameter.sizes(),
                                     parameter_exponent(parameter)));
  }
}

at::Tensor make_input(const Golden& golden, const std::string& name, at::IntArrayRef shape) {
  const Case& c = golden.golden_case;
  const at::Tensor values =
      given_or_formula(golden, "input." + name, shape, find_or(c.magnitude, name, 0));
  return with_layout(values, c.layout).detach().requires_grad_(c.gradients);
}

}  // namespace

Experiment::Experiment(const Golden& golden, const std::optional<WeightSource>& weights)
    : case_(golden.golden_case),
      subject_(make_subject(case_)),
      mask_(find_or(golden.tensors, "input.mask", make_mask(case_))) {
  if (subject_.module != nullptr) {
    subject_.module->to(case_.dtype);
    subject_.module->train(case_.train);
    if (weights) {
      load_weights(*subject_.module, weights->path, weights->options);
    } else {
      fill_parameters(*subject_.module, golden);
    }
  }
  for (const auto& [name, shape] : case_.inputs) {
    leaves_.emplace_back(name, make_input(golden, name, shape));
  }
  arguments_ = leaves_;
  for (const auto& [name, same] : case_.alias) {
    arguments_.emplace_back(name, find_or(leaves_, same, at::Tensor()));
  }
}

void Experiment::disturb(double unit, uint64_t draw) {
  const at::NoGradGuard no_grad;
  const auto move = [&](const std::string& name, const at::Tensor& tensor) {
    const uint64_t salt = formula_salt("rounding." + name, draw);
    at::Tensor factor = at::empty(tensor.sizes(), at::kDouble);
    auto* values = factor.mutable_data_ptr<double>();
    for (int64_t i = 0; i < factor.numel(); ++i)
      values[i] = 1.0 + ((formula_bits(salt, static_cast<uint64_t>(i)) & 1) != 0 ? unit : -unit);
    tensor.mul_(factor);
  };
  for (const auto& [name, leaf] : leaves_) move(name, leaf);
  if (subject_.module == nullptr) return;
  for (const auto& parameter : subject_.module->named_parameters())
    move(parameter.key(), parameter.value());
}

Outputs Experiment::forward() {
  at::set_num_threads(case_.threads);
  torch::manual_seed(case_.seed);
  return subject_.forward(arguments_, mask_);
}

NamedTensors Experiment::run(bool gradients) {
  const at::AutoGradMode mode(gradients);
  const Outputs outputs = forward();
  NamedTensors results = {{"output", outputs.output.detach()}};
  std::vector<at::Tensor> roots = {outputs.output};
  if (case_.need_weights) {
    results.emplace_back("weights", outputs.weights.detach());
    roots.push_back(outputs.weights);
  }
  if (!gradients) return results;

  std::vector<at::Tensor> root_gradients;
  for (const at::Tensor& root : roots) {
    const char* name = root_gradients.empty() ? "grad_output" : "grad_weights";
    root_gradients.push_back(formula_tensor(name, case_.seed, root.sizes(), 0, case_.dtype));
  }
  torch::autograd::backward(roots, root_gradients);
  const auto add_gradient = [&](const std::string& name, const at::Tensor& leaf) {
    results.emplace_back("grad." + name,
                         leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
  };
  for (const auto& [name, leaf] : leaves_) add_gradient(name, leaf);
  if (subject_.module != nullptr) {
    for (const auto& parameter : subject_.module->named_parameters()) {
      add_gradient(parameter.key(), parameter.value());
    }
  }
  return results;
}

double Experiment::forward_seconds(int repeats) {
  const at::NoGradGuard no_grad;
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    forward();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

bool drops_by_chance(const Golden& golden) {
  const at::Tensor keep = find_or(golden.tensors, "dropout_keep", at::Tensor());
  return keep.defined() && keep.ne(0).any().item<bool>() && !keep.ne(0).all().item<bool>();
}

bool draws_the_same_dropout(const Golden& golden) {
  const at::Tensor keep = find_or(golden.tensors, "dropout_keep", at::Tensor());
  if (!keep.defined()) return true;
  const Case& c = golden.golden_case;
  at::set_num_threads(c.threads);
  torch::manual_seed(c.seed);
  const double p = c.options.value("attn_dropout", 0.0);
  const at::Tensor drawn = at::dropout(at::ones(keep.sizes(), c.dtype), p, /*train=*/true);
  return drawn.ne(0).equal(keep.ne(0));
}

}  // namespace attn::golden
