// Reads and writes weight files on command, for scripts/benchmark_weights: each line of standard input is a task and a
// path, each line of standard output the seconds that it took. LibTorch thus starts once, and attn takes turns with Python.
//
//   open   the tensors, whose bytes nobody looks at
//   read   the tensors, and a copy of each
//   load   the tensors into the parameters of a module
//   keep   as read, for what follows
//   save   the tensors that were kept to this path
//
// Tasks but `keep` run in a copy of the process (fork), as the first of it; with --here they run in the process itself.

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <attn/weights.h>
#include <sys/wait.h>
#include <torch/nn/module.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string>
#include <string_view>

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
    if (task == "read" || task == "keep") {
      // What was read is let go after the clock has stopped, as in Python.
      NamedTensors read;
      copies_.clear();
      return seconds([&] {
        read = read_weights(path);
        for (const auto& [name, tensor] : read) copies_.emplace_back(name, tensor.clone());
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

/// Runs the task in a child, and waits for it.
void run_in_child(Worker& worker, const std::string& task, const std::string& path) {
  const pid_t child = fork();
  if (child == 0) {
    std::cout << worker.run(task, path) << std::endl;
    _exit(0);
  }
  if (child < 0 || waitpid(child, nullptr, 0) != child) std::cout << -1 << std::endl;
}

}  // namespace
}  // namespace attn::bench

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const bool here = argc > 1 && std::string_view(argv[1]) == "--here";
  attn::bench::Worker worker;
  for (std::string task, path; std::cin >> task && std::getline(std::cin >> std::ws, path);) {
    if (here || task == "keep") {
      std::cout << worker.run(task, path) << std::endl;
    } else {
      run_in_child(worker, task, path);
    }
  }
}
