#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace attn::testing {

/// A file of tests/data.
inline std::string test_data(const std::string& name) {
  return std::string(ATTN_TEST_DATA) + "/" + name;
}

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A file that lasts as long as this object.
class TempFile {
 public:
  explicit TempFile(std::string_view bytes, const std::string& suffix = "") {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    static int number = 0;
    path_ = ::testing::TempDir() + "attn_" + std::to_string(getpid()) + "_" + test->name() +
            std::to_string(number++) + suffix;
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  ~TempFile() { std::filesystem::remove(path_); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace attn::testing
