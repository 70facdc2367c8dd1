#include "weights/formats/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace attn::formats {
namespace {

using namespace std::string_literals;

TEST(Utf8, TakesTheFirstAndLastCharacterOfEveryLength) {
  for (const std::string& text :
       {""s, "\0"s, "\x7f"s, "\xc2\x80"s, "\xdf\xbf"s, "\xe0\xa0\x80"s, "\xef\xbf\xbf"s,
        "\xf0\x90\x80\x80"s, "\xf4\x8f\xbf\xbf"s, "a\xc3\xa4z"s, "\xed\x9f\xbf\xee\x80\x80"s}) {
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST(Utf8, RefusesOverlongCutAndStrayBytes) {
  for (const std::string& text :
       {"\x80"s, "\xbf"s, "\xc0\x80"s, "\xc1\xbf"s, "\xe0\x9f\xbf"s, "\xf0\x8f\xbf\xbf"s,
        "\xf4\x90\x80\x80"s, "\xf5\x80\x80\x80"s, "\xff"s, "\xc3"s, "\xe2\x82"s, "\xf0\x9f\x98"s,
        "\xc3z"s, "\xe2\x82z"s}) {
    EXPECT_FALSE(is_utf8(text)) << text;
    EXPECT_FALSE(is_utf8(text, /*surrogates=*/true)) << text;
  }
}

TEST(Utf8, LetsSurrogatesPassWhenAsked) {
  for (const std::string& text : {"\xed\xa0\x80"s, "\xed\xbf\xbf"s}) {
    EXPECT_FALSE(is_utf8(text));
    EXPECT_TRUE(is_utf8(text, /*surrogates=*/true));
  }
}

TEST(Utf8, AppendsCharactersOfEveryLength) {
  std::string text;
  for (const std::uint32_t code_point :
       {0x41u, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu})
    append_utf8(text, code_point);
  EXPECT_EQ(text, "A\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
}

}  // namespace
}  // namespace attn::formats
