#include "io/reward/decimal.hpp"

#include <gtest/gtest.h>

namespace paceline::io {
namespace {

/// Every number of a text as it is written, with bars between.
std::string found_in(std::string_view text) {
  std::string all;
  for (auto found = find_decimal(text); found; found = find_decimal(text, found->end))
    all += (all.empty() ? "" : "|") +
           std::string(text.substr(found->begin, found->end - found->begin));
  return all;
}

TEST(Decimal, IsFoundAsItIsWritten) {
  EXPECT_EQ(found_in("no number."), "");
  EXPECT_EQ(found_in("It is 72."), "72");
  EXPECT_EQ(found_in("$1,234.50, then 5"), "1,234.50|5");
  EXPECT_EQ(found_in("1,2,3 and 1,2345 and 12345,678"), "1|2|3|1|2345|12345|678");
  EXPECT_EQ(found_in("1,234,567,89"), "1,234,567|89");
  EXPECT_EQ(found_in("10-3=7, (x)-2, =-4, a -5, +6"), "10|3|7|2|-4|-5|+6");
  EXPECT_EQ(found_in(".5 1. .x 3.14.15"), ".5|1|3.14|15");
  EXPECT_EQ(found_in("1e5 2E-3 3ex 4e 5e+x"), "1e5|2E-3|3|4|5");
  EXPECT_EQ(found_in("-"), "");
  EXPECT_EQ(found_in("--7"), "-7");
}

TEST(Decimal, EqualNumbersAreEqualHoweverTheyAreWritten) {
  const auto number = [](std::string_view text) { return whole_decimal(text).value(); };
  for (const char* same : {"72", "72.0", " 72\n", "072", "7.2e1", "720e-1", "+72", "$72", "72%",
                           "72.", "\\$72", "72\\%"})
    EXPECT_EQ(number(same), number("72")) << same;
  EXPECT_EQ(number("1,234"), number("1234"));
  EXPECT_EQ(number("-0.0"), number("0"));
  EXPECT_EQ(number(".50"), number("0.5"));
  // Beyond the digits of a double.
  EXPECT_FALSE(number("12345678901234567890") == number("12345678901234567891"));
  EXPECT_EQ(number("12345678901234567890"), number("1234567890123456789e1"));
  EXPECT_FALSE(number("-72") == number("72"));
  EXPECT_DOUBLE_EQ(number("-1,234.5e2").value(), -123450);
  EXPECT_DOUBLE_EQ(number("0").value(), 0);
}

TEST(Decimal, WhatIsNotANumberAltogetherIsNone) {
  for (const char* text : {"", " ", "x", "72 apples", "1 2", "7/8", "$", "1,2", "--7", "10-3"})
    EXPECT_FALSE(whole_decimal(text)) << text;
}

}  // namespace
}  // namespace paceline::io
