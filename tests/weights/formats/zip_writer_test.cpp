#include "weights/formats/zip_writer.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "support/refusal.h"
#include "support/sparse_memory.h"
#include "support/zip_bytes.h"
#include "weights/formats/zip.h"

namespace attn::formats {
namespace {

using attn::testing::SparseMemory;
using attn::testing::zip_bytes;
using attn::testing::zip_part;
using attn::testing::ZipFields;

/// What `fill` makes a writer write.
template <class Fill>
std::string written(const Fill& fill) {
  std::string file;
  ZipWriter writer([&file](std::string_view bytes) { file += bytes; });
  fill(writer);
  writer.finish();
  return file;
}

TEST(ZipWriter, WritesWhatTheFormatSays) {
  const std::string file = written([](ZipWriter& writer) { writer.add("r", "abc"); });
  auto part = zip_part("r", "abc", 0x352441C2);  // the checksum of "abc", by Python's zlib
  part.both([](ZipFields& fields) { fields.flags = 0x0800; });
  EXPECT_EQ(file, zip_bytes({part}));
}

TEST(ZipWriter, WritesAnEmptyArchive) {
  EXPECT_EQ(written([](ZipWriter&) {}), zip_bytes({}));
}

TEST(ZipWriter, JoinsThePiecesOfARecord) {
  const std::array<std::string_view, 4> pieces = {"at", "", "tent", "ion"};
  const auto one = [](ZipWriter& writer) { writer.add("r", "attention"); };
  EXPECT_EQ(written([&](ZipWriter& writer) { writer.add("r", pieces); }), written(one));
}

TEST(ZipWriter, PutsRecordsAtMultiplesOfTheirAlignment) {
  for (const std::uint64_t alignment : {1U, 2U, 3U, 64U, 4096U}) {
    const std::string file = written([&](ZipWriter& writer) {
      for (std::size_t i = 0; i < 100; ++i)
        writer.add("r" + std::string(i, '_'), std::string(i, 'x'), alignment);
    });
    const ZipArchive archive(file);
    ASSERT_EQ(archive.records().size(), 100U);
    for (std::size_t i = 0; i < 100; ++i) {
      const ZipRecord& record = archive.records()[i];
      EXPECT_EQ(record.begin % alignment, 0U) << record.name;
      EXPECT_EQ(archive.read(record, 100), std::string(i, 'x'));
    }
  }
}

TEST(ZipWriter, WritesMoreRecordsThanSixteenBitsCount) {
  constexpr std::size_t kRecords = 70'000;
  const std::string file = written([](ZipWriter& writer) {
    for (std::size_t i = 0; i < kRecords; ++i) writer.add(std::to_string(i), "x");
  });
  const ZipArchive archive(file);
  ASSERT_EQ(archive.records().size(), kRecords);
  EXPECT_EQ(archive.records()[69'999].name, "69999");
}

TEST(ZipWriter, WritesSizesAndPlacesBeyondThirtyTwoBits) {
  // As much address space as the archive has bytes: of the large record no page is written.
  constexpr std::int64_t kLarge = (std::int64_t{1} << 32) + 5;
  const SparseMemory zeros(kLarge);
  const SparseMemory archive_memory(kLarge + 4096);
  ASSERT_NE(zeros.data(), nullptr);
  ASSERT_NE(archive_memory.data(), nullptr);
  char* const file = reinterpret_cast<char*>(archive_memory.data());
  std::uint64_t size = 0;
  ZipWriter writer([&](std::string_view bytes) {
    if (bytes.size() < 4096) std::memcpy(file + size, bytes.data(), bytes.size());
    size += bytes.size();
  });
  writer.add("large", std::string_view(reinterpret_cast<const char*>(zeros.data()), kLarge), 64);
  writer.add("behind", "abc", 64);
  writer.finish();

  const ZipArchive archive(std::string_view(file, size));
  ASSERT_EQ(archive.records().size(), 2U);
  EXPECT_EQ(archive.records()[0].begin, 64U);
  EXPECT_EQ(archive.records()[0].size, kLarge);
  EXPECT_EQ(archive.records()[0].crc32, 0xB1C2A1A3U);  // by Python's zlib
  EXPECT_GT(archive.records()[1].begin, kLarge);
  EXPECT_EQ(archive.records()[1].begin % 64, 0U);
  EXPECT_EQ(archive.read(archive.records()[1], 3), "abc");
}

TEST(ZipWriter, RefusesNamesThatTheFormatCannotHold) {
  const std::string longest(0xFFFF, 'n');
  const std::string file = written([&](ZipWriter& writer) { writer.add(longest, "abc"); });
  EXPECT_NE(ZipArchive(file).find(longest), nullptr);
  expect_refused([&] { written([&](ZipWriter& writer) { writer.add(longest + 'n', "abc"); }); },
                 "\"nnn", "less than 64 KiB");
}

}  // namespace
}  // namespace attn::formats
