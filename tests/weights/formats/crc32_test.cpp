#include "weights/formats/crc32.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace attn::formats {
namespace {

std::uint32_t of_zlib(std::string_view bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(::crc32(before, reinterpret_cast<const Bytef*>(bytes.data()),
                                            static_cast<uInt>(bytes.size())));
}

TEST(Crc32, IsThatOfZipArchives) {
  // The check value of the catalogues of checksums.
  EXPECT_EQ(crc32("123456789"), 0xCBF43926U);
  EXPECT_EQ(crc32(""), 0U);
}

TEST(Crc32, GoesOnFromWhatCameBefore) {
  EXPECT_EQ(crc32("456789", crc32("123")), 0xCBF43926U);
  EXPECT_EQ(crc32("", 0xCBF43926U), 0xCBF43926U);
  EXPECT_EQ(crc32(std::string_view(), 0xCBF43926U), 0xCBF43926U);
}

TEST(Crc32, OfTheRestFollowsFromTheWholeAndTheStart) {
  EXPECT_EQ(crc32_of_rest(0xCBF43926U, crc32("123"), 6), 0xFB16B375U);  // Python's zlib on "456789"
  EXPECT_EQ(crc32_of_rest(0xCBF43926U, 0xCBF43926U, 0), 0U);
  EXPECT_EQ(crc32_of_rest(0xCBF43926U, 0, 9), 0xCBF43926U);
}

TEST(Crc32, IsThatOfZlibForEveryLengthPlaceAndStart) {
  std::mt19937 random(1);
  std::string bytes(5000, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (std::size_t size = 1; size < 1200; ++size) {
    const std::string_view part = std::string_view(bytes).substr(random() % 65, size);
    EXPECT_EQ(crc32(part), of_zlib(part, 0)) << size;
    const auto before = static_cast<std::uint32_t>(random());
    EXPECT_EQ(crc32(part, before), of_zlib(part, before)) << size;
  }
  for (const char byte : {'\0', '\xff'}) {
    const std::string same(4096, byte);
    EXPECT_EQ(crc32(same), of_zlib(same, 0));
  }
}

TEST(Crc32, NoticesEveryFlippedBit) {
  std::string bytes(1000, 'x');
  const std::uint32_t before = crc32(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    EXPECT_NE(crc32(bytes), before) << bit;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  }
}

}  // namespace
}  // namespace attn::formats
