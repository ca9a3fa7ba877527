#include "io/reward/ground_truth.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/core/error.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace paceline::io {
namespace {

PromptSet prompts(const std::string& text, const Tokenizer& tokenizer) {
  return parse_prompts(text, "p.jsonl", &tokenizer, nullptr, {});
}

struct GroundTruth : ::testing::Test {
  Tokenizer tokenizer = Tokenizer::parse(tiny::document().dump(), "t.json");
  std::optional<std::string> of(const std::string& line, const Auto<std::string>& field = {}) {
    return ground_truth_text(prompts(line, tokenizer).prompts.at(0), field);
  }
  std::string error(const RewardSection& settings, const std::string& text) {
    try {
      (void)scoring_subjects(settings, prompts(text, tokenizer), "p.jsonl", tokenizer);
    } catch (const DataError& e) {
      return e.what();
    }
    return "";
  }
};

TEST_F(GroundTruth, IsFoundWhereTrainersHaveIt) {
  EXPECT_EQ(of(R"({"prompt": "a", "ground_truth": "1"})"), "1");
  EXPECT_EQ(of(R"({"prompt": "a", "reward_model": {"ground_truth": "2"}})"), "2");
  EXPECT_EQ(of(R"({"prompt": "a", "answer": "so\n#### 3"})"), "so\n#### 3");
  EXPECT_EQ(of(R"({"prompt": "a", "answer": "3", "ground_truth": "4"})"), "4");
  EXPECT_EQ(of(R"({"prompt": "a", "reward_model": {"ground_truth": [1, "b"]}})"), R"([1,"b"])");
  EXPECT_EQ(of(R"({"prompt": "a", "reward_model": {"ground_truth": null}})"), std::nullopt);
  EXPECT_EQ(of(R"({"prompt": "a"})"), std::nullopt);
}

TEST_F(GroundTruth, AnyFieldCanHoldIt) {
  const std::string line =
      R"({"prompt": "a", "ground_truth": "1", "extra_info": {"a.b": {"c": 7}}, "x": {"y": "2"}})";
  EXPECT_EQ(of(line, "x.y"), "2");
  EXPECT_EQ(of(line, "extra_info.a.b.c"), "7");
  EXPECT_EQ(of(line, "ground_truth"), "1");
  EXPECT_EQ(of(line, "x.z"), std::nullopt);
  EXPECT_EQ(of(line, "y"), std::nullopt);
}

TEST_F(GroundTruth, RulesMayGoByDataSource) {
  RewardSection settings;
  settings.method = RewardMethod::match;
  settings.rule = {std::nullopt, {{"gsm8k", AnswerRule::last_number}, {"MATH", AnswerRule::boxed}}};
  const std::string known = R"({"prompt": "a", "answer": "1", "data_source": "MATH"})"
                            "\n"
                            R"({"prompt": "b", "answer": "1", "data_source": "gsm8k"})"
                            "\n";
  const auto subjects = scoring_subjects(settings, prompts(known, tokenizer), "p.jsonl", tokenizer);
  const AnswerMatches matches(settings);
  EXPECT_TRUE(matches.matches("2, no \\boxed{1} 3", subjects.at(0)));
  EXPECT_FALSE(matches.matches("1", subjects.at(0)));
  EXPECT_TRUE(matches.matches("\\boxed{2} 1", subjects.at(1)));
  EXPECT_EQ(error(settings,
                  known + R"({"uid": "a", "prompt": "c", "answer": "1", "data_source": "aime"})"),
            "p.jsonl:3: prompt 'a': its data_source 'aime' has no rule: expected 'MATH', "
            "'gsm8k', or a `default` (reward.rule)");
  EXPECT_EQ(error(settings, R"({"uid": "a", "prompt": "c", "answer": "1"})"),
            "p.jsonl:1: prompt 'a': its data_source '' has no rule: expected 'MATH', "
            "'gsm8k', or a `default` (reward.rule)");
  settings.rule.otherwise = AnswerRule::exact;
  EXPECT_EQ(error(settings, R"({"prompt": "c", "answer": "x"})"), "");
  EXPECT_EQ(
      error(settings, R"({"uid": "a", "prompt": "c", "answer": "x", "data_source": "gsm8k"})"),
      "p.jsonl:1: prompt 'a': its ground truth 'x' cannot be compared with by "
      "reward.rule: it is no number");
}

TEST_F(GroundTruth, AMissingOneNamesItsLine) {
  RewardSection settings;
  settings.method = RewardMethod::match;
  const std::string text =
      "{\"prompt\": \"a\", \"answer\": \"1\"}\n\n{\"uid\": \"u\", \"prompt\": \"b\"}\n";
  EXPECT_EQ(error(settings, text),
            "p.jsonl:3: prompt 'u' has no ground truth to score responses by: expected "
            "ground_truth, reward_model.ground_truth or answer (reward.ground_truth names another "
            "field)");
  EXPECT_EQ(error(settings, R"({"prompt": "a", "uid": "w", "answer": "one"})"),
            "p.jsonl:1: prompt 'w': its ground truth 'one' cannot be compared with by "
            "reward.rule: it is no number");
  settings.method = RewardMethod::command;  // a judge needs none
  EXPECT_EQ(error(settings, text), "");
  settings.ground_truth = "answer";
  EXPECT_EQ(error(settings, text),
            "p.jsonl:3: prompt 'u' has no ground truth to score responses by: expected the field "
            "answer (reward.ground_truth)");
}

}  // namespace
}  // namespace paceline::io
