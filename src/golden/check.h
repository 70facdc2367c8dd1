#pragma once

#include <attn/backend.h>

#include <optional>
#include <string_view>

#include "golden/compare.h"
#include "golden/given_weights.h"

namespace attn::golden {

enum class Verdict {
  kAgrees,
  kDisagrees,
  /// The file was made from another declaration than that of cases.json.
  kStale,
  /// The backend does not take the case or has no part in it, or it is not comparable on this
  /// machine; `Row::reason` says why.
  kSkipped,
  /// The file, or a weight file that it names, cannot be read.
  kUnreadable,
};

/// "agrees", "disagrees", "stale", "skipped" or "unreadable".
std::string_view to_string(Verdict verdict);

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
  bool same_bits = false;
  Verdict verdict = Verdict::kAgrees;
  /// Of another verdict than agreement, or what of the case could not be run.
  std::string reason;
  /// Best time of a forward, and that of eager Python; 0 where it was not measured.
  double seconds = 0.0;
  double python_seconds = 0.0;
};

struct CheckOptions {
  /// Demand Python's bits, which the reference backend alone has, on the machine that made the files.
  bool exact = false;
  /// Empty: all of this build, or the reference alone where bits are demanded.
  std::vector<Backend> backends;
  /// The cases of cases.json; a golden of another declaration is stale. Empty: none is.
  std::vector<Case> declared;
  /// Weights of one golden file's module, instead of those that the file names or declares.
  std::optional<GivenWeights> weights;
};

/// Checks one golden case on every asked-for backend, with the given weights or with every weight
/// file that it names.
std::vector<Row> check_golden(const Golden& golden, const CheckOptions& options = {});

/// Checks that a module built under a seed holds Python's parameters and leaves the generator where
/// Python's is; bit for bit.
Row check_init(const Init& init);

/// Checks a file, or every *.safetensors file of a folder in the order of names, weight files aside.
/// What cannot be read in a folder is a row of its own. Throws `c10::Error` where a single file cannot
/// be read, where the path holds no golden file, and where weights are given for a folder.
std::vector<Row> check_path(const std::string& path, const CheckOptions& options = {});

}  // namespace attn::golden
