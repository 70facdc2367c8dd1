#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "weights/formats/stored_file.h"
#include "weights/formats/torch_pickle.h"

namespace attn::formats {

/// Lists what a checkpoint holds, within the limits. A file may refer to one container from many
/// places, and is then listed once for each; so that few bytes do not become many names, a checkpoint
/// may come to each of its values 16 times, on average.
class Listing {
 public:
  Listing(const Pickle& pickle, StoredFile& file);

  /// @throws FormatError where the name is no UTF-8, or there already
  void add(StoredTensor tensor);
  void skip(const std::string& name, std::string_view what);

  /// Counts values that are looked at.
  void visit(std::uint64_t values);
  /// Counts bytes that names are put together from.
  void name_bytes(std::uint64_t bytes);

 private:
  void check_name(const std::string& name);

  StoredFile& file_;
  std::set<std::string> names_;
  std::uint64_t visits_left_;
  std::uint64_t name_bytes_ = 0;
};

}  // namespace attn::formats
