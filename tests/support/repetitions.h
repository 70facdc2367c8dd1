#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace attn::testing {

/// A number of the environment.
inline uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Calls check(seed) for one seed after the other until one fails: `cases` of them from 1 on, or as
/// ATTN_TEST_CASES and ATTN_TEST_SEED say.
template <class Check>
void for_seeds(uint64_t cases, Check check) {
  const uint64_t first = from_environment("ATTN_TEST_SEED", 1);
  cases = from_environment("ATTN_TEST_CASES", cases);
  for (uint64_t seed = first; seed < first + cases && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("ATTN_TEST_SEED=" + std::to_string(seed));
    check(seed);
  }
}

/// Chooses among the problems of a grid: takes all of them, or as many percent as ATTN_TEST_PERCENT says.
class Sample {
 public:
  bool takes_next() {
    // The golden ratio's multiples, modulo 1, fall evenly everywhere, however the grid's rows are long.
    const uint64_t place = 0x9E3779B97F4A7C15 * next_++;
    return static_cast<double>(place >> 11) * 0x1p-53 < share_;
  }

 private:
  const double share_ = static_cast<double>(from_environment("ATTN_TEST_PERCENT", 100)) / 100.0;
  uint64_t next_ = 0;
};

}  // namespace attn::testing
