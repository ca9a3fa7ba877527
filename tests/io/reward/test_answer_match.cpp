#include "io/reward/answer_match.hpp"

#include <gtest/gtest.h>

#include "runtime/core/error.hpp"

namespace paceline::io {
namespace {

AnswerMatch by(AnswerRule rule, double tolerance = 0, std::optional<std::string> pattern = {}) {
  RewardSection settings;
  settings.tolerance = tolerance;
  settings.pattern = std::move(pattern);
  return AnswerMatch(settings, rule);
}

TEST(AnswerMatch, Exact) {
  const AnswerMatch match = by(AnswerRule::exact);
  EXPECT_TRUE(match.matches(" 27 93\n", "27 93"));
  EXPECT_FALSE(match.matches("27  93", "27 93"));
  EXPECT_FALSE(match.matches("72.0", "72"));
  EXPECT_EQ(match.unusable(" "), "it is empty");
  EXPECT_EQ(match.unusable("x"), "");
}

TEST(AnswerMatch, Numeric) {
  const AnswerMatch match = by(AnswerRule::numeric);
  EXPECT_TRUE(match.matches(" $1,072.0 ", "1072"));
  EXPECT_FALSE(match.matches("It is 72", "72"));
  EXPECT_FALSE(match.matches("72.001", "72"));
  EXPECT_EQ(match.unusable("27 93"), "it is no number");
}

TEST(AnswerMatch, ToleranceIsRelativeToTheTruthOrToOne) {
  const AnswerMatch match = by(AnswerRule::numeric, 0.01);
  EXPECT_TRUE(match.matches("1009", "1000"));
  EXPECT_FALSE(match.matches("1011", "1000"));
  EXPECT_TRUE(match.matches("0.009", "0"));
  EXPECT_FALSE(match.matches("0.011", "0"));
  EXPECT_TRUE(match.matches("-99.5", "-100"));
  EXPECT_FALSE(match.matches("99.5", "-100"));
}

TEST(AnswerMatch, LastNumber) {
  const AnswerMatch match = by(AnswerRule::last_number);
  EXPECT_TRUE(match.matches("6*7=42, so it is 42.", "42"));
  EXPECT_FALSE(match.matches("42, or rather 43", "42"));
  EXPECT_TRUE(match.matches("#### 41\nWait.\n#### 42\n1000 bottles", "42"));
  EXPECT_FALSE(match.matches("42 ####", "42"));
  EXPECT_FALSE(match.matches("none", "42"));
  EXPECT_FALSE(match.matches("", "42"));
  // GSM8K's own answers have the mark too.
  EXPECT_TRUE(match.matches("It is 1,042", "He has 3 of 5.\n#### 1042"));
  EXPECT_EQ(match.unusable("He has 3.\n#### 1042"), "");
  EXPECT_EQ(match.unusable("He has 3."), "it is no number");
  EXPECT_EQ(match.unusable("#### none"), "it is no number");
}

TEST(AnswerMatch, Boxed) {
  const AnswerMatch match = by(AnswerRule::boxed);
  EXPECT_TRUE(match.matches("\\boxed{1} or \\boxed{ \\frac{3}{4} }.", "\\frac{3}{4}"));
  EXPECT_TRUE(match.matches("\\boxed {\\{1, 2\\}}", "\\{1,2\\}"));
  EXPECT_TRUE(match.matches("\\boxed{5.0}", "5"));
  EXPECT_TRUE(match.matches("\\boxed{5}", "Thus 2+3=\\boxed{5}"));
  EXPECT_FALSE(match.matches("\\boxed{5} no, \\boxed{6", "5"));  // cut short
  EXPECT_FALSE(match.matches("5", "5"));
  EXPECT_FALSE(match.matches("\\boxed 5", "5"));
  EXPECT_FALSE(match.matches("\\boxed{5\\", "5"));
}

TEST(AnswerMatch, Regex) {
  const AnswerMatch group = by(AnswerRule::regex, 0, "(?i)answer:\\s*(.+)");
  EXPECT_TRUE(group.matches("Answer: 1\nanswer: 27 93\nmore", "27 93"));
  EXPECT_FALSE(group.matches("Answer: 27 93\nanswer: 1", "27 93"));
  EXPECT_FALSE(group.matches("27 93", "27 93"));
  EXPECT_TRUE(by(AnswerRule::regex, 0, "[A-D]").matches("A? No: C", "C"));
  // Of alternatives the group need not be in the match; matches may be empty.
  EXPECT_TRUE(by(AnswerRule::regex, 0, "x(y)?").matches("xy x", "x"));
  EXPECT_FALSE(by(AnswerRule::regex, 0, "\\d*").matches("\u00e9 7", "7"));
  EXPECT_FALSE(by(AnswerRule::regex, 0, "\\d*").matches("\u00e9\u00e9", "7"));
}

TEST(AnswerMatch, APatternThatDoesNotCompileIsRefusedWithItsPlace) {
  try {
    by(AnswerRule::regex, 0, "a(b");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(std::string(error.what()),
              "reward.pattern: 'a(b': missing closing parenthesis at byte 3");
  }
}

TEST(AnswerMatch, APatternThatNeverEndsIsAnError) {
  const AnswerMatch match = by(AnswerRule::regex, 0, "(a+)+$");
  EXPECT_THROW((void)match.matches(std::string(40, 'a') + "b", "a"), DataError);
}

}  // namespace
}  // namespace paceline::io
