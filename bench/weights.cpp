// Reads and writes weight files on command, for scripts/benchmark_weights: each line of standard input is a task and a
// path, each line of standard output the seconds that it took. The process thus starts once, and takes turns with Python.
//
//   open   the tensors, whose bytes nobody looks at
//   read   the tensors, and a copy of each
//   load   the tensors into the parameters of a module
//   save   the tensors that were read last to this path

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <attn/weights.h>
#include <torch/nn/module.h>

#include <chrono>
#include <iostream>
#include <string>

namespace attn::bench {
namespace {

/// A module with the parameters of a file, none of their memory touched yet.
class Empty : public torch::nn::Module {
 public:
  explicit Empty(const std::string& path) {
    for (const auto& [name, tensor] : read_weights(path))
      register_parameter(name, at::empty(tensor.sizes(), tensor.options()));
  }
};

class Worker {
 public:
  /// The seconds of a task; negative where there is no such task.
  double run(const std::string& task, const std::string& path) {
    if (task == "open") return seconds([&] { read_weights(path); });
    if (task == "read") {
      return seconds([&] {
        copies_.clear();
        for (const auto& [name, tensor] : read_weights(path))
          copies_.emplace_back(name, tensor.clone());
      });
    }
    if (task == "load") {
      Empty module(path);
      return seconds([&] { load_weights(module, path); });
    }
    if (task == "save") return seconds([&] { save_weights(copies_, path); });
    return -1;
  }

 private:
  template <class Task>
  static double seconds(const Task& task) {
    const auto start = std::chrono::steady_clock::now();
    task();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  NamedTensors copies_;
};

}  // namespace
}  // namespace attn::bench

int main() {
  at::set_num_threads(1);
  attn::bench::Worker worker;
  for (std::string task, path; std::cin >> task && std::getline(std::cin >> std::ws, path);)
    std::cout << worker.run(task, path) << std::endl;
}
