#include "weights/formats/stored_file.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weights/formats/format_error.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

constexpr std::uint64_t k2To62 = std::uint64_t{1} << 62;
constexpr std::uint64_t k2To63 = std::uint64_t{1} << 63;

StoredTensor tensor_of(std::vector<std::uint64_t> sizes, std::vector<std::uint64_t> strides,
                       std::uint64_t offset = 0) {
  StoredTensor tensor;
  tensor.name = "w";
  tensor.sizes = std::move(sizes);
  tensor.strides = std::move(strides);
  tensor.offset = offset;
  return tensor;
}

void expect_refused(const StoredTensor& tensor, std::uint64_t bytes, const std::string& part) {
  try {
    check_tensor(tensor, bytes);
    ADD_FAILURE() << "accepted";
  } catch (const FormatError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("tensor \"w\""), std::string::npos) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(CheckTensor, TakesWhatJustFitsAndRefusesOneByteLess) {
  // float32 [2, 3] contiguous: 24 bytes; transposed the same; from element 5 on 20 more.
  for (const auto& [tensor, bytes] :
       {std::pair{tensor_of({2, 3}, {3, 1}), 24}, std::pair{tensor_of({3, 2}, {1, 3}), 24},
        std::pair{tensor_of({2, 3}, {3, 1}, 5), 44}, std::pair{tensor_of({4, 3}, {0, 1}), 12},
        std::pair{tensor_of({}, {}), 4}}) {
    EXPECT_NO_THROW(check_tensor(tensor, bytes)) << bytes;
    expect_refused(tensor, bytes - 1, "inside the " + std::to_string(bytes - 1) + " bytes");
  }
}

TEST(CheckTensor, NeedsNoBytesForNoElements) {
  EXPECT_NO_THROW(check_tensor(tensor_of({0, 3}, {3, 1}), 0));
  EXPECT_NO_THROW(check_tensor(tensor_of({3, 0}, {1, 1}, 7), 0));
}

TEST(CheckTensor, RefusesNumbersThatOverflow) {
  expect_refused(tensor_of({k2To63}, {0}), 4, "below 2^63");
  expect_refused(tensor_of({2, 2}, {k2To63, 1}), 16, "below 2^63");
  expect_refused(tensor_of({1}, {k2To63}), 4, "below 2^63");
  expect_refused(tensor_of({2}, {1}, ~std::uint64_t{0}), 8, "below 2^63");
  expect_refused(tensor_of({k2To62, 4}, {0, 0}), 4, "below 2^63");
  expect_refused(tensor_of({0, k2To62, 4}, {1, 1, 1}), 4, "below 2^63");
  expect_refused(tensor_of({k2To62}, {4}), 4, "below 2^63");
  // 2^60 elements of 4 bytes overflow as bits alone.
  expect_refused(tensor_of({k2To62 / 4}, {1}), 4, "below 2^63");
}

TEST(CheckTensor, RefusesStridesWithoutSizesAndTooManyDimensions) {
  expect_refused(tensor_of({2, 2}, {1}), 16, "as many strides as sizes");
  const std::vector<std::uint64_t> ones(kMaxDimensions + 1, 1);
  expect_refused(tensor_of(ones, ones), 4, "at most 64 dimensions, got 65");
}

TEST(ContiguousStrides, AreThoseOfLibTorch) {
  EXPECT_EQ(contiguous_strides(std::vector<std::uint64_t>{2, 3, 4}),
            (std::vector<std::uint64_t>{12, 4, 1}));
  EXPECT_EQ(contiguous_strides(std::vector<std::uint64_t>{2, 0, 4}),
            (std::vector<std::uint64_t>{4, 4, 1}));
  EXPECT_TRUE(contiguous_strides({}).empty());
}

}  // namespace
}  // namespace attn::formats
