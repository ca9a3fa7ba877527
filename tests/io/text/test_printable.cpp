// What a terminal would obey does not reach it.
#include <gtest/gtest.h>

#include <string>

#include "io/text/printable.hpp"

namespace {

using paceline::io::printable;
using paceline::io::printable_start;

TEST(Printable, TextStaysAsItIs) {
  for (const char* text : {"", "plain", "\u00e9\u4e2d\U0001F600", "a\\n\"b\" <|im_end|>"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, ControlCharactersAreSpelled) {
  EXPECT_EQ(printable("\x1b[2J\x07\x7f\r\n\t"), "\\x1b[2J\\x07\\x7f\\r\\n\\t");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b31m"), "\\x9b31m") << "C1, which some terminals obey too";
  EXPECT_EQ(printable("a\u202eb\u2066\u200f\u2028"), "a\\u202eb\\u2066\\u200f\\u2028");
}

TEST(Printable, LinesMayStay) { EXPECT_EQ(printable("a\n\tb\r\x1b", true), "a\n\tb\\r\\x1b"); }

TEST(Printable, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(printable("a\xff\xe4\xb8z"), "a\ufffd\ufffdz");
  EXPECT_EQ(printable("\x9b"), "\ufffd") << "a bare C1 byte";
}

TEST(Printable, AStartIsCutBetweenCharacters) {
  EXPECT_EQ(printable_start("abcdef", 6), "abcdef");
  EXPECT_EQ(printable_start("abcdefg", 6), "abc...");
  EXPECT_EQ(printable_start("\u00e9\u00e9\u00e9\u00e9\u00e9", 4), "\u00e9...");
  EXPECT_EQ(printable_start("\u4e2d\u4e2d\u4e2d\u4e2d", 4), "\u4e2d\u4e2d\u4e2d\u4e2d");
  EXPECT_EQ(printable_start("a\nb", 10), "a\\nb");
  EXPECT_EQ(printable_start(std::string(1000, 'x'), 10), "xxxxxxx...");
}

}  // namespace
