#include "weights/formats/zip.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/refusal.h"
#include "support/zip_bytes.h"
#include "weights/formats/limits.h"

namespace attn::formats {
namespace {

using attn::testing::deflate_stored;
using attn::testing::local_header;
using attn::testing::number;
using attn::testing::zip_bytes;
using attn::testing::zip_part;
using attn::testing::ZipEndFields;
using attn::testing::ZipFields;
using attn::testing::ZipPart;

constexpr std::uint64_t kMost = 1'000'000;
constexpr std::uint64_t kAbcChecksum = 0x352441C2;  // of "abc", by Python's zlib

ZipPart abc(std::string name = "r") { return zip_part(std::move(name), "abc", kAbcChecksum); }

/// "abc" deflated.
ZipPart deflated_abc() {
  ZipPart part = abc();
  part.stored = deflate_stored("abc");
  part.both([&](ZipFields& fields) {
    fields.method = 8;
    fields.stored_size = part.stored.size();
  });
  return part;
}

/// Names and bytes of all records.
std::vector<std::pair<std::string, std::string>> read_all(std::string_view file) {
  const ZipArchive archive(file);
  std::vector<std::pair<std::string, std::string>> result;
  for (const ZipRecord& record : archive.records())
    result.emplace_back(record.name, archive.read(record, kMost));
  return result;
}

using Records = std::vector<std::pair<std::string, std::string>>;
const Records kOneAbc = {{"r", "abc"}};

void expect_archive_refused(const std::vector<ZipPart>& parts, std::string_view place,
                            std::string_view rule, const ZipEndFields& end = {}) {
  expect_refused([&] { read_all(zip_bytes(parts, end)); }, place, rule);
}

TEST(Zip, HasItsRecordsInTheOrderOfTheDirectory) {
  const Records expected = {{"z", "abc"}, {"é/a", "abc"}, {"", "abc"}};
  const std::string file = zip_bytes({abc("z"), abc("é/a"), abc("")});
  EXPECT_EQ(read_all(file), expected);
  const ZipArchive archive(file);
  EXPECT_EQ(archive.find("é/a"), &archive.records()[1]);
  EXPECT_EQ(archive.find("é"), nullptr);
  EXPECT_EQ(archive.find("zz"), nullptr);
}

TEST(Zip, MayBeEmpty) {
  const std::string file = zip_bytes({});
  EXPECT_EQ(read_all(file), Records{});
  EXPECT_EQ(ZipArchive(file).find(""), nullptr);
}

TEST(Zip, StaysWholeWhenItIsCopiedAndMoved) {
  const std::string file = zip_bytes({abc("a"), abc("b")});
  ZipArchive archive(file);
  const ZipArchive copy = archive;
  const ZipArchive moved = std::move(archive);
  EXPECT_EQ(copy.find("b"), &copy.records()[1]);
  EXPECT_EQ(moved.find("b"), &moved.records()[1]);
}

TEST(Zip, InflatesRecords) { EXPECT_EQ(read_all(zip_bytes({deflated_abc()})), kOneAbc); }

TEST(Zip, GivesRecordsAsStorages) {
  const std::string file = zip_bytes({abc("name"), deflated_abc()});
  const ZipArchive archive(file);
  const Storage stored = archive.storage(archive.records()[0]);
  EXPECT_EQ(file.substr(stored.begin, stored.stored_size), "abc");
  EXPECT_EQ(stored.size, 3U);
  EXPECT_FALSE(stored.deflated);
  EXPECT_EQ(stored.crc32, kAbcChecksum);
  const Storage deflated = archive.storage(archive.records()[1]);
  EXPECT_EQ(file.substr(deflated.begin, deflated.stored_size), deflate_stored("abc"));
  EXPECT_EQ(deflated.size, 3U);
  EXPECT_TRUE(deflated.deflated);
}

TEST(Zip, LeavesFoldersOut) {
  EXPECT_EQ(read_all(zip_bytes({zip_part("folder/", "", 0), abc()})), kOneAbc);
}

TEST(Zip, MayHaveAComment) {
  const std::string longest(0xFFFF, 'c');
  EXPECT_EQ(read_all(zip_bytes({abc()}, {.comment = longest})), kOneAbc);
  EXPECT_EQ(read_all(zip_bytes({abc()}, {.comment = "with PK\5\6 inside"})), kOneAbc);
}

TEST(Zip, MayTellSizesAndChecksumAfterTheBytes) {
  ZipPart part = abc();
  part.both([](ZipFields& fields) { fields.flags = 8; });
  part.local.crc32 = part.local.stored_size = part.local.size = 0;
  part.after = "PK\7\10" + number(kAbcChecksum, 4) + number(3, 4) + number(3, 4);
  EXPECT_EQ(read_all(zip_bytes({part, abc("next")})), (Records{{"r", "abc"}, {"next", "abc"}}));
}

TEST(Zip, MayPadWithExtraFields) {
  ZipPart part = abc();
  part.local.extra = "FB" + number(5, 2) + "ZZZZZ";
  EXPECT_EQ(read_all(zip_bytes({part})), kOneAbc);
  part.local.extra = std::string(3, '\0');  // too short to be a field
  EXPECT_EQ(read_all(zip_bytes({part})), kOneAbc);
}

TEST(Zip, MayBeZip64) {
  EXPECT_EQ(read_all(zip_bytes({abc()}, {.zip64 = true})), kOneAbc);
  ZipPart part = abc();
  part.both([](ZipFields& fields) {
    fields.size = fields.stored_size = 0xFFFFFFFF;
    fields.extra = number(1, 2) + number(16, 2) + number(3, 8) + number(3, 8);
  });
  EXPECT_EQ(read_all(zip_bytes({part}, {.zip64 = true})), kOneAbc);
  part = abc();
  part.at = 0xFFFFFFFF;
  part.directory.extra = number(1, 2) + number(8, 2) + number(0, 8);
  EXPECT_EQ(read_all(zip_bytes({part})), kOneAbc);
}

TEST(Zip, WithoutChecksumsHasNoneToCheck) {
  ZipPart wrong = abc("wrong");
  wrong.both([](ZipFields& fields) { fields.crc32 = 0; });
  const std::string without = zip_bytes({wrong});
  EXPECT_EQ(read_all(without), (Records{{"wrong", "abc"}}));
  EXPECT_FALSE(ZipArchive(without).has_checksums());
  EXPECT_FALSE(ZipArchive(without).storage(ZipArchive(without).records()[0]).crc32.has_value());
  // One record that has a checksum shows that they were not left out.
  expect_archive_refused({wrong, abc()}, "\"wrong\"", "checksum");
}

TEST(Zip, WhoseBytesChangedIsRefused) {
  ZipPart part = abc();
  part.stored = "abd";
  expect_archive_refused({part}, "\"r\"", "damaged");
  part = deflated_abc();
  part.stored = deflate_stored("abd");
  expect_archive_refused({part}, "\"r\"", "damaged");
}

TEST(Zip, IsReadInFullOrRefusedWhicheverBitFlips) {
  const std::string file = zip_bytes({abc("a"), deflated_abc()}, {.zip64 = true, .comment = "c"});
  const Records expected = read_all(file);
  for (std::size_t i = 0; i < 8 * file.size(); ++i) {
    std::string flipped = file;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ 1 << i % 8);
    try {
      EXPECT_EQ(read_all(flipped), expected) << "bit " << i;
    } catch (const FormatError&) {
    }
  }
}

TEST(Zip, CutOffAnywhereIsRefused) {
  const std::string file = zip_bytes({abc("a"), deflated_abc()}, {.zip64 = true, .comment = "c"});
  for (std::size_t size = 0; size < file.size(); ++size) {
    const std::string text = refusal([&] { read_all(file.substr(0, size)); });
    EXPECT_NE(text.find(size < 2 ? "got something else" : "truncated"), text.npos)
        << size << ": " << text;
  }
}

TEST(Zip, WithoutItsFirstBytesOrWithOthersInFrontIsRefused) {
  const std::string file = zip_bytes({abc()});
  for (std::size_t missing = 1; missing < file.size(); ++missing)
    EXPECT_NE(refusal([&] { read_all(file.substr(missing)); }), "") << missing;
  expect_refused([&] { read_all("#!" + file); }, "zip archive", "put in front");
  expect_refused([&] { read_all(file + '\n'); }, "zip archive", "goes on behind it");
}

TEST(Zip, HasFewerRecordsThanTheLimit) {
  expect_archive_refused({abc()}, "at most 2000000 records", "got 2000001",
                         {.records = kMaxZipRecords + 1, .zip64 = true});
  expect_archive_refused({abc()}, "at most 2000000 records", "got 18446744073709551615",
                         {.records = ~std::uint64_t{0}, .zip64 = true});
}

TEST(Zip, HasTheRecordsThatItsEndDeclares) {
  expect_archive_refused({abc()}, "expected 2 records in its directory", "got 47 bytes",
                         {.records = 2});
  expect_archive_refused({abc()}, "expected 2000000 records", "got 47 bytes",
                         {.records = kMaxZipRecords, .zip64 = true});
  expect_archive_refused({abc("a"), abc("b")}, "expected 1 records", "got more", {.records = 1});
  // Names of 46 bytes make room for records that are not there.
  const std::string name(46, 'n');
  expect_archive_refused({abc(name)}, "zip archive", "expected a record in its directory",
                         {.records = 2});
}

TEST(Zip, HasItsDirectoryJustBeforeItsEnd) {
  const std::uint64_t begin = 34;  // after one header with a name of one byte and "abc"
  EXPECT_EQ(read_all(zip_bytes({abc()}, {.begin = begin})), kOneAbc);
  for (const std::uint64_t wrong : {std::uint64_t{0}, begin - 1, begin + 1, ~std::uint64_t{0}}) {
    expect_archive_refused({abc()}, "expected its directory of 47 bytes", "bytes are missing",
                           {.begin = wrong, .zip64 = true});
    expect_archive_refused({abc()}, "expected its directory of", "bytes are missing",
                           {.size = wrong, .zip64 = true});
  }
}

TEST(Zip, HasEndRecordsThatAgree) {
  std::string file = zip_bytes({abc()}, {.zip64 = true});
  file.replace(file.size() - 22 + 10, 2, number(2, 2));  // records
  expect_refused([&] { read_all(file); }, "two end records to agree", "got 2 and 1");
}

TEST(Zip, HasItsZip64RecordWhereTheLocatorSays) {
  for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{1'000}, ~std::uint64_t{0}})
    expect_archive_refused({abc()}, "expected its zip64 end record before byte 137", "got byte",
                           {.locator = wrong, .zip64 = true});
  for (const std::uint64_t wrong : {std::uint64_t{43}, std::uint64_t{45}, ~std::uint64_t{0}})
    expect_archive_refused({abc()}, "expected a zip64 end record of 44 bytes", "got",
                           {.zip64_size = wrong, .zip64 = true});
}

TEST(Zip, InSeveralPartsIsRefused) {
  expect_archive_refused({abc()}, "expected one part", "got several", {.part = 1});
  expect_archive_refused({abc()}, "expected one part", "got several", {.part = 1, .zip64 = true});
}

TEST(Zip, WithARecordOrANumberOfItInAnotherPartIsRefused) {
  ZipPart part = abc();
  part.part = 1;
  expect_archive_refused({part}, "\"r\"", "expected it in this file, got another part");

  const std::string file = zip_bytes({abc()});
  std::string changed = file;
  changed.replace(file.size() - 22 + 8, 2, number(0, 2));  // records in this part
  expect_refused([&] { read_all(changed); }, "expected one part", "got several");

  const std::string zip64 = zip_bytes({abc()}, {.zip64 = true});
  const std::size_t locator = zip64.size() - 22 - 20;
  changed = zip64;
  changed.replace(locator + 4, 4, number(1, 4));  // the part with the zip64 record
  expect_refused([&] { read_all(changed); }, "expected one part", "got several");
  changed = zip64;
  changed.replace(locator + 16, 4, number(2, 4));  // parts
  expect_refused([&] { read_all(changed); }, "expected one part", "got several");
}

TEST(Zip, EncryptedIsRefused) {
  for (const std::uint64_t flag : {1U << 0U, 1U << 5U, 1U << 6U, 1U << 13U}) {
    ZipPart part = abc();
    part.directory.flags = flag;
    expect_archive_refused({part}, "\"r\"", "encryption");
    part = abc();
    part.local.flags = flag;
    expect_archive_refused({part}, "\"r\"", "encryption");
  }
}

TEST(Zip, WithOtherCompressionIsRefused) {
  for (const std::uint64_t method : {1U, 9U, 12U, 14U, 93U, 0xFFFFU}) {
    ZipPart part = abc();
    part.both([&](ZipFields& fields) { fields.method = method; });
    expect_archive_refused({part}, "\"r\"", "compression method " + std::to_string(method));
  }
}

TEST(Zip, WithANameTwiceIsRefused) {
  expect_archive_refused({abc("a"), abc("b"), abc("a")}, "\"a\"", "expected once, got twice");
}

TEST(Zip, WhoseLocalHeaderContradictsItsDirectoryIsRefused) {
  ZipPart part = abc();
  part.local.name = "s";
  expect_archive_refused({part}, "\"r\"", "expected its name in its local header, got \"s\"");
  part = abc();
  part.local.method = 8;
  expect_archive_refused({part}, "\"r\"",
                         "expected the compression method of the directory, 0, got 8");
  part = abc();
  part.local.crc32 = 1;
  expect_archive_refused({part}, "\"r\"", "checksum of the directory");
  part = abc();
  part.local.stored_size = 2;
  expect_archive_refused({part}, "\"r\"",
                         "stored size of the directory, 3, in its local header, got 2");
  part = abc();
  part.local.size = 0;
  expect_archive_refused({part}, "\"r\"", "size of the directory, 3, in its local header, got 0");
}

TEST(Zip, WhoseRecordsOverlapIsRefused) {
  ZipPart second = abc("second");
  second.local.name = "first";
  second.at = 0;  // that of the first
  expect_archive_refused({abc("first"), second}, "\"second\"", "expected its name");

  // The second record lies inside the bytes of the first.
  const std::string inner = local_header(abc("inner").local) + "abc";
  ZipPart outer = zip_part("outer", inner, 0);
  ZipPart inside = abc("inner");
  inside.at = local_header(outer.local).size();
  inside.local.name = "unused";
  expect_archive_refused({outer, inside}, "\"inner\"", "got some of record \"outer\"");
}

TEST(Zip, WhoseRecordsReachOutsideIsRefused) {
  for (const std::uint64_t at : {std::uint64_t{1}, std::uint64_t{34}, std::uint64_t{35},
                                 std::uint64_t{0xFFFFFFF0}, std::uint64_t{0xFFFFFFFF}}) {
    ZipPart part = abc();
    part.at = at;
    expect_archive_refused({part}, "\"r\"", "expected it");
  }
  ZipPart part = abc();
  part.both([](ZipFields& fields) { fields.size = fields.stored_size = 4; });
  expect_archive_refused({part}, "\"r\"", "expected 4 bytes before the directory, got 3");
  part.both([](ZipFields& fields) {
    fields.size = fields.stored_size = 0xFFFFFFFF;
    fields.extra =
        number(1, 2) + number(16, 2) + number(~std::uint64_t{0}, 8) + number(~std::uint64_t{0}, 8);
  });
  expect_archive_refused({part}, "\"r\"",
                         "expected 18446744073709551615 bytes before the directory");
}

TEST(Zip, WhoseHeadersReachOutsideIsRefused) {
  for (const std::size_t length_of : {26U, 28U}) {  // the name, the extra fields
    std::string file = zip_bytes({abc()});
    file.replace(length_of, 2, number(0xFFFF, 2));
    expect_refused([&] { read_all(file); }, "\"r\"", "its local header reaches outside the file");
  }
  for (const std::size_t length_of : {28U, 30U, 32U}) {  // and the comment
    std::string file = zip_bytes({abc()});
    file.replace(file.find("PK\1\2") + length_of, 2, number(0xFFFF, 2));
    expect_refused([&] { read_all(file); }, "zip archive", "a header reaches outside it");
  }
}

TEST(Zip, WhoseExtraFieldsAreBrokenIsRefused) {
  ZipPart part = abc();
  part.local.extra = "FB" + number(2, 2) + "Z";
  expect_archive_refused({part}, "\"r\"", "expected its extra fields inside its header");
  part = abc();
  part.directory.size = part.directory.stored_size = 0xFFFFFFFF;
  part.directory.extra = number(1, 2) + number(8, 2) + number(3, 8);
  expect_archive_refused({part}, "\"r\"", "expected its sizes in the zip64 field, got 8 bytes");
  part.directory.extra += part.directory.extra;
  expect_archive_refused({part}, "\"r\"", "expected one zip64 field, got two");
}

TEST(Zip, WithSizesThatNoCompressionHasIsRefused) {
  ZipPart part = abc();
  part.both([](ZipFields& fields) { fields.size = 4; });
  expect_archive_refused({part}, "\"r\"", "expected a size that 3 stored bytes can have, got 4");
  // A bomb by declaration alone: nothing is taken for it.
  part = deflated_abc();
  part.both([](ZipFields& fields) { fields.size = 0xFFFFFFFE; });
  expect_archive_refused({part}, "\"r\"", "expected a size that 8 deflated bytes can have");
}

TEST(Zip, WhoseRecordsWouldInflateBeyondTheLimitTogetherIsRefused) {
  // Each of two records is fine by itself: 1,000 times its 40,000 bytes.
  std::vector<ZipPart> parts;
  for (const char* name : {"a", "b"}) {
    parts.push_back(zip_part(name, std::string(40'000, 'x'), 0));
    parts.back().both([](ZipFields& fields) {
      fields.method = 8;
      fields.size = 40'000'000;
    });
  }
  EXPECT_NO_THROW(ZipArchive(zip_bytes({parts[0]})));
  expect_refused([&] { ZipArchive{zip_bytes(parts)}; }, "",
                 "expected at most 64000000 bytes in its deflated records together");
}

TEST(Zip, GivesNoMoreBytesThanAskedFor) {
  const std::string file = zip_bytes({abc()});
  const ZipArchive archive(file);
  EXPECT_EQ(archive.read(archive.records()[0], 3), "abc");
  expect_refused([&] { archive.read(archive.records()[0], 2); }, "\"r\"",
                 "expected at most 2 bytes, got 3");
}

TEST(Zip, WhoseDeflatedBytesAreBrokenIsRefused) {
  ZipPart part = deflated_abc();
  part.stored[0] = 7;  // a kind of block that there is not
  expect_archive_refused({part}, "\"r\"", "deflated bytes: broken");
  part = deflated_abc();
  part.both([](ZipFields& fields) { fields.size = 4; });
  expect_archive_refused({part}, "\"r\"", "expected 4 bytes, got 3");
  part.both([](ZipFields& fields) { fields.size = 2; });
  expect_archive_refused({part}, "\"r\"", "got more");
}

}  // namespace
}  // namespace attn::formats
