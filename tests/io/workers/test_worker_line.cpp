#include "io/workers/worker_line.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/reward/ground_truth.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace paceline::io {
namespace {

using nlohmann::json;

TEST(WorkerLine, HasAllThatAScorerMayAskFor) {
  const Tokenizer tokenizer = Tokenizer::parse(tiny::document().dump(), "t.json");
  const PromptSet set = parse_prompts(
      R"({"uid": "u", "prompt": "hello", "data_source": "gsm8k", "ability": "math",)"
      R"( "reward_model": {"style": "rule", "ground_truth": ["1", 2]}, "extra_info": {"i": 3}})",
      "p.jsonl", &tokenizer, nullptr, {});
  RewardSection settings;
  settings.method = RewardMethod::command;
  settings.send_tokens = true;
  const auto subjects = scoring_subjects(settings, set, "p.jsonl", tokenizer);
  Trajectory response;
  response.id = {7, 2};
  response.tokens = {258, 111, 0xC3, 261};  // a cut UTF-8 sequence, a special token
  response.finish_reason = FinishReason::stop_id;
  const std::string line = request_line(response, subjects.at(0), tokenizer, true);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(json::parse(line), json::parse(R"({
    "id": "7:2", "uid": "u", "prompt": "hello", "data_source": "gsm8k",
    "ground_truth": ["1", 2], "extra_info": {"i": 3}, "fields": {"ability": "math"},
    "prompt_tokens": [260, 259], "response": "hello\ufffd", "response_tokens": [258, 111, 195, 261],
    "finish_reason": "stop_id"})"));
  settings.send_tokens = false;
  const auto without = scoring_subjects(settings, set, "p.jsonl", tokenizer);
  EXPECT_EQ(
      json::parse(request_line(response, without.at(0), tokenizer, false)).count("prompt_tokens"),
      0U);
}

TEST(WorkerLine, WhatAPromptHasNotIsNull) {
  const Tokenizer tokenizer = Tokenizer::parse(tiny::document().dump(), "t.json");
  const PromptSet set = parse_prompts(R"({"prompt": "a"})", "p.jsonl", &tokenizer, nullptr, {});
  RewardSection settings;
  settings.method = RewardMethod::command;
  const auto subjects = scoring_subjects(settings, set, "p.jsonl", tokenizer);
  const json line = json::parse(request_line({}, subjects.at(0), tokenizer, false));
  EXPECT_EQ(line["ground_truth"], nullptr);
  EXPECT_EQ(line["data_source"], nullptr);
  EXPECT_EQ(line["extra_info"], json::object());
}

TEST(WorkerLine, AnswersAreScoresErrorsOrGarbage) {
  const RequestId id{3, 1};
  const auto garbage = [&](const std::string& line) {
    const WorkerAnswer answer = read_answer(line, id);
    return answer.kind == WorkerAnswer::Kind::garbage ? answer.text : "not garbage";
  };
  const WorkerAnswer score = read_answer(R"({"id": "3:1", "score": -1.5, "acc": true})", id);
  EXPECT_EQ(score.kind, WorkerAnswer::Kind::score);
  EXPECT_EQ(score.score, -1.5F);
  EXPECT_EQ(read_answer(R"( {"id": "3:1", "score": 1} )", id).score, 1);
  EXPECT_EQ(score.extra, "");  // what else is in an answer is ignored
  const std::string explained =
      R"({"id": "3:1", "score": 1, "extra": {"b": "\u00e9", "a": [1, null]}})";
  EXPECT_EQ(read_answer(explained, id).extra, "{\"b\":\"\u00e9\",\"a\":[1,null]}");
  EXPECT_EQ(read_answer(R"({"id": "3:1", "score": 1, "extra": {}})", id).extra, "");
  EXPECT_EQ(read_answer(R"({"id": "3:1", "score": 1, "extra": null})", id).extra, "");
  EXPECT_EQ(garbage(R"({"id": "3:1", "score": 1, "extra": [1]})"),
            R"(no object as extra in '{"id": "3:1", "score": 1, "extra": [1]}')");
  const WorkerAnswer error = read_answer(R"({"id": "3:1", "error": "KeyError: 'x'"})", id);
  EXPECT_EQ(error.kind, WorkerAnswer::Kind::error);
  EXPECT_EQ(error.text, "KeyError: 'x'");
  EXPECT_EQ(garbage(""), "no JSON object in ''");
  EXPECT_EQ(garbage("Loading..."), "no JSON object in 'Loading...'");
  EXPECT_EQ(garbage("[1]"), "no JSON object in '[1]'");
  EXPECT_EQ(garbage(R"({"id": "3:1", "score": NaN})"),
            R"(no JSON object in '{"id": "3:1", "score": NaN}')");
  EXPECT_EQ(garbage(R"({"id": "3:2", "score": 1})"),
            R"(not the id 3:1 in '{"id": "3:2", "score": 1}')");
  EXPECT_EQ(garbage(R"({"score": 1})"), R"(not the id 3:1 in '{"score": 1}')");
  EXPECT_EQ(garbage(R"({"id": "3:1", "score": "1"})"),
            R"(no number as score in '{"id": "3:1", "score": "1"}')");
  EXPECT_EQ(garbage(R"({"id": "3:1", "score": 1e300})"),
            R"(no finite score in '{"id": "3:1", "score": 1e300}')");
  EXPECT_EQ(garbage(std::string(200, 'x')).size(),
            std::string("no JSON object in '...'").size() + 80);
}

}  // namespace
}  // namespace paceline::io
