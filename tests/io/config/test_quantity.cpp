#include "io/config/quantity.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace paceline::io {
namespace {

TEST(Quantity, Integers) {
  EXPECT_EQ(parse_integer("0"), 0);
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_EQ(parse_integer("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  for (const char* bad :
       {"", " 1", "1 ", "+1", "1.0", "1e3", "0x10", "9223372036854775808", "ten"}) {
    EXPECT_EQ(parse_integer(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_unsigned("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse_unsigned("18446744073709551616"), std::nullopt);
  EXPECT_EQ(parse_unsigned("-1"), std::nullopt);
}

TEST(Quantity, Reals) {
  EXPECT_EQ(parse_float("0.7"), 0.7F);
  EXPECT_EQ(parse_float("1e-3"), 1e-3F);
  EXPECT_EQ(parse_double("-2.5"), -2.5);
  for (const char* bad : {"", "inf", "nan", ".nan", "1e39", "1e-60", "0.7x", "1,5", "0x1p3"}) {
    EXPECT_EQ(parse_float(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_double("1e400"), std::nullopt);
}

TEST(Quantity, Sizes) {
  EXPECT_EQ(parse_size("0"), 0);
  EXPECT_EQ(parse_size("1048576"), 1U << 20);
  EXPECT_EQ(parse_size("2GiB"), 2ULL << 30);
  EXPECT_EQ(parse_size("512 MiB"), 512ULL << 20);
  EXPECT_EQ(parse_size("1.5e9"), 1500000000);
  EXPECT_EQ(parse_size("1.5GB"), 1500000000);
  EXPECT_EQ(parse_size("0.5KiB"), 512);
  EXPECT_EQ(parse_size("8G"), 8ULL << 30);  // as Slurm's --mem
  EXPECT_EQ(parse_size("1.5T"), 3ULL << 39);
  EXPECT_EQ(parse_size("4096M"), 4ULL << 30);
  EXPECT_EQ(parse_size("16 K"), 16384);
  EXPECT_EQ(parse_size("7B"), 7);
  EXPECT_EQ(parse_size("4611686018427387904"), 1ULL << 62);
  for (const char* bad :
       {"", "GiB", "-1GiB", "2 g", "2gib", "2Gi", "2GiBs", "1.5", "1e30", "5e18", "9e99TiB",
        "4611686018427387905", "99999999999999999999", "0x10", "inf", "1e999"}) {
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
  }
}

TEST(Quantity, Durations) {
  EXPECT_EQ(parse_duration("90"), 90);
  EXPECT_EQ(parse_duration("0.25"), 0.25);
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("30m"), 1800);
  EXPECT_EQ(parse_duration("2h"), 7200);
  EXPECT_EQ(parse_duration("1.5h"), 5400);
  EXPECT_EQ(parse_duration("1d2h3m4s"), 86400 + 7200 + 180 + 4);
  EXPECT_EQ(parse_duration("02:03:04"), 7384);
  EXPECT_EQ(parse_duration("1-00:00:01"), 86401);
  EXPECT_EQ(parse_duration("100:00:00"), 360000);
  for (const char* bad :
       {"", "s", "1x", "-5", "1h30", "30m1h", "1h1h", "10:00", "1:60:00", "1:00:60", "a:00:00",
        "1:2:3:4", "-1:00:00", "1-1:1", "inf", "1e999", "1 h"}) {
    EXPECT_EQ(parse_duration(bad), std::nullopt) << bad;
  }
}

TEST(Quantity, NumbersReadBackToTheSameBits) {
  for (const float value : {0.0F, 0.1F, 1.0F / 3, 1e-38F, 3.4e38F, 1.0F, 0.95F}) {
    EXPECT_EQ(parse_float(format_number(value)), value);
  }
  EXPECT_EQ(format_number(0.95F), "0.95");
  EXPECT_EQ(format_number(30.0), "30");
}

}  // namespace
}  // namespace paceline::io
