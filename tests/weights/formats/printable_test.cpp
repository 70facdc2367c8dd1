#include "weights/formats/printable.h"

#include <gtest/gtest.h>

#include <string>

#include "weights/formats/format_error.h"

namespace attn::formats {
namespace {

TEST(Printable, KeepsTextOfAnyLanguage) {
  for (const char* text : {"encoder.0.weight", "größe", "重み", "\xF0\x9F\x98\x80", "\"\\", ""})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ShowsWhatWouldChangeTheTerminal) {
  EXPECT_EQ(printable("a\x1B[2Jb\n"), "a\\x1b[2Jb\\x0a");
  EXPECT_EQ(printable("\x7F"), "\\x7f");
  EXPECT_EQ(printable("\xC2\x9B"), "\\u009b");
  EXPECT_EQ(printable("\xE2\x80\xAE"
                      "abc"),
            "\\u202eabc");
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
  EXPECT_EQ(printable("\xFF"
                      "a\xC3"),
            "\\xffa\\xc3");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xed\\xa0\\x80");
}

TEST(InQuotes, ShortensBetweenCharacters) {
  EXPECT_EQ(in_quotes("a\tb"), "\"a\\x09b\"");
  // 99 bytes, then a character of two: it would end behind the hundredth.
  EXPECT_EQ(in_quotes(std::string(99, 'a') + "\xC3\xA9z"), '"' + std::string(99, 'a') + "…\"");
}

}  // namespace
}  // namespace attn::formats
