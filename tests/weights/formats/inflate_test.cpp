#include "weights/formats/inflate.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "support/refusal.h"
#include "support/zip_bytes.h"

namespace attn::formats {
namespace {

using attn::testing::deflate_stored;
using attn::testing::from_hex;

// Made by Python's zlib: 1,000 times "a", and nothing at all.
const std::string kThousand = from_hex("4b4c1c05a360140c770000");
const std::string kNothing = from_hex("0300");

std::string inflated(std::string_view deflated, std::size_t size, std::uint64_t skip = 0) {
  std::string bytes(size, '?');
  inflate(deflated, bytes, skip);
  return bytes;
}

TEST(Inflate, FillsTheBufferExactly) {
  EXPECT_EQ(inflated(kThousand, 1000), std::string(1000, 'a'));
  EXPECT_EQ(inflated(kNothing, 0), "");
  EXPECT_EQ(inflated(deflate_stored("as it is"), 8), "as it is");
}

TEST(Inflate, SkipsWhatComesBefore) {
  EXPECT_EQ(inflated(deflate_stored("as it is"), 5, 3), "it is");
  EXPECT_EQ(inflated(deflate_stored("as it is"), 0, 8), "");
  const std::string long_text(40000, 'x');
  EXPECT_EQ(inflated(deflate_stored(long_text + "end"), 3, 40000), "end");
}

TEST(Inflate, ReadsABeginningWhateverFollows) {
  std::string start(5, '?');
  inflate_start(kThousand, start);
  EXPECT_EQ(start, "aaaaa");
  inflate_start(kThousand.substr(0, 4), std::span(start).first(1));
  EXPECT_EQ(refusal([&] { inflate_start(kNothing, start); }),
            "deflated bytes: expected 5 bytes, got 0");
}

TEST(Inflate, RefusesAnotherSizeThanDeclared) {
  expect_refused([] { inflated(kThousand, 999); }, "deflated bytes", "got more");
  expect_refused([] { inflated(kThousand, 0); }, "deflated bytes", "got more");
  expect_refused([] { inflated(kThousand, 1001); }, "expected 1001 bytes", "got 1000");
  expect_refused([] { inflated(kThousand, 1, 1001); }, "expected 1001 bytes", "got 1000");
  expect_refused([] { inflated(kThousand, 1, 1000); }, "expected 1001 bytes", "got 1000");
}

TEST(Inflate, RefusesStreamsThatAreCutOffOrGoOn) {
  for (std::size_t size = 0; size < kThousand.size(); ++size)
    EXPECT_NE(refusal([&] { inflated(kThousand.substr(0, size), 1000); }), "") << size;
  EXPECT_EQ(refusal([] { inflated(kThousand + "xy", 1000); }),
            "deflated bytes: expected their end, got 2 bytes more");
}

TEST(Inflate, RefusesWhatIsNoStream) {
  expect_refused([] { inflated("\xFF\xFF\xFF", 10); }, "deflated bytes", "broken");
  expect_refused([] { inflated(std::string_view("\1\5\0\5\0hello", 10), 5); }, "deflated bytes",
                 "broken");
}

}  // namespace
}  // namespace attn::formats
