#include "io/text/question.hpp"

#include <gtest/gtest.h>

namespace paceline::io {
namespace {

std::optional<std::string> of(const std::string& fields) {
  Prompt prompt;
  prompt.extra_json = fields;
  return question_of(prompt);
}

TEST(QuestionOf, IsWhatTheUserSaidLast) {
  EXPECT_EQ(
      of(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
                {"role": "assistant", "content": "x"}, {"role": "user", "content": "b"},
                {"role": "assistant", "content": "y"}]})"),
      "b");
  EXPECT_EQ(of(R"({"prompt": [{"role": "user", "content": "verl's"}]})"), "verl's");
  EXPECT_EQ(of(R"({"messages": [{"role": "user", "content": [{"type": "image"},
                {"type": "text", "text": "what is "}, {"type": "text", "text": "this?"}]}]})"),
            "what is this?");
  EXPECT_EQ(of(R"({"messages": "keys name text"})"), "keys name text");
  EXPECT_EQ(of(R"({"prompt": "text"})"), "text");
}

TEST(QuestionOf, IsNothingWhereNoUserSpoke) {
  EXPECT_EQ(of("{}"), std::nullopt);
  EXPECT_EQ(of(""), std::nullopt);
  EXPECT_EQ(of(R"({"prompt_tokens": [1, 2]})"), std::nullopt);
  EXPECT_EQ(of(R"({"messages": [{"role": "system", "content": "s"}]})"), std::nullopt);
  EXPECT_EQ(of(R"({"messages": [1, {"role": 2}, {"role": "user"}]})"), "");
}

}  // namespace
}  // namespace paceline::io
