#pragma once

#include <attn/backend.h>

#include "golden/compare.h"

namespace attn::golden {

enum class Verdict {
  kAgrees,
  kDisagrees,
  /// The file was made from another declaration than that of cases.json.
  kStale,
  /// Not comparable on this machine; `Row::reason` says why.
  kSkipped,
};

/// One golden case on one backend with one source of weights.
struct Row {
  std::string name;
  std::string module;
  /// The weight file, or the golden file where it brings none.
  std::string file;
  Backend backend = Backend::kReference;
  /// The worst tensor: the one that is furthest beyond, or else nearest to, its bound.
  Comparison worst;
  /// Every tensor has Python's bits.
  bool same_bits = true;
  Verdict verdict = Verdict::kAgrees;
  std::string reason;
  /// Best time of a forward, and that of eager Python; 0 where it was not measured.
  double seconds = 0.0;
  double python_seconds = 0.0;
};

struct CheckOptions {
  /// Demand Python's bits, as the reference backend has them on the machine that made the files.
  bool exact = false;
  /// Empty: all of this build.
  std::vector<Backend> backends;
};

/// Checks one golden case on every asked-for backend, with every weight file that it names.
std::vector<Row> check_golden(const Golden& golden, const CheckOptions& options = {});

/// Checks that a module built under a seed holds Python's parameters and leaves the generator where
/// Python's is; bit for bit.
Row check_init(const Init& init);

/// Checks a file, or every *.safetensors file of a folder in the order of names, weight files
/// aside. Throws `c10::Error` where the path holds no golden file.
std::vector<Row> check_path(const std::string& path, const CheckOptions& options = {});

/// True when the file's declaration differs from the one given.
bool is_stale(const Golden& golden, const Case& declared);

}  // namespace attn::golden
