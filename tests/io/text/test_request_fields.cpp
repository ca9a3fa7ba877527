// What a line may say of how its responses are sampled, and what it may not.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/text/prompts.hpp"
#include "runtime/core/error.hpp"
#include "tests/io/text/expect_error.hpp"
#include "tests/io/text/fixtures.hpp"
#include "tests/io/text/tiny_tokenizer.hpp"

namespace {

using paceline::DataError;
using paceline::LogitBias;
using paceline::RequestSampling;
using paceline::SamplingParams;
using paceline::StopSet;
using paceline::TokenDraw;
using paceline::TokenId;
using paceline::io::Overlong;
using paceline::io::PromptOptions;
using paceline::io::PromptSet;
using paceline::io::stored_sampling;
using paceline::io::Tokenizer;
using Ids = std::vector<TokenId>;

constexpr TokenId kEnd = 200;  // the model's own

class OwnSampling : public testing::Test {
 protected:
  OwnSampling() {
    options.vocab_size = 300;
    options.max_tokens = 60;
    options.request.sampling.max_tokens = 40;
    options.request.sampling.stop_ids = {9};
    options.request.sampling.stop_strings = {"end"};
    options.request.context = 100;
    options.request.samples = 4;
    options.request.stops = [](const SamplingParams& sampling) {
      Ids ids = sampling.stop_ids;
      ids.push_back(kEnd);
      return ids;
    };
  }
  /// Of a line of one token with these fields.
  [[nodiscard]] PromptSet parse(const std::string& fields) const {
    return paceline::io::parse_prompts(
        R"({"tokens":[5])" + (fields.empty() ? "" : "," + fields) + "}", "p.jsonl", &tokenizer,
        nullptr, options);
  }
  [[nodiscard]] RequestSampling own(const std::string& fields) const {
    return parse(fields).prompts.at(0).sampling;
  }

  PromptOptions options;
  Tokenizer tokenizer = Tokenizer::parse(tiny::document().dump(), "tiny");
};

TEST_F(OwnSampling, TakesThePlaceOfTheRuns) {
  EXPECT_EQ(own(""), RequestSampling{});
  EXPECT_EQ(own(R"("max_tokens":null,"stop_ids":null,"stop_strings":null)"), RequestSampling{});
  EXPECT_EQ(own(R"("max_tokens":7)").max_tokens, 7);
  EXPECT_EQ(own(R"("max_tokens":99)").max_tokens, 99) << "more than the run's";
  EXPECT_FALSE(own(R"("max_tokens":7)").stops);
  EXPECT_EQ(own(R"("stop_ids":[3,4])").stops, (StopSet{{3, 4, kEnd}, {"end"}}))
      << "the model's own and the run's texts stay";
  EXPECT_EQ(own(R"("stop_strings":["a","b c"])").stops, (StopSet{{9, kEnd}, {"a", "b c"}}));
  EXPECT_EQ(own(R"("stop_strings":[],"stop_ids":[])").stops, (StopSet{{kEnd}, {}}));
  const PromptSet set = parse(R"("max_tokens":7, "stop_ids":[3])");
  EXPECT_EQ(set.prompts[0].extra_json, R"({"max_tokens":7,"stop_ids":[3]})") << "for trainers";
  EXPECT_EQ(set.fields.honoured, (std::set<std::string>{"max_tokens", "stop_ids"}));
  EXPECT_TRUE(parse(R"("max_tokens":null)").fields.honoured.empty());
}

TEST_F(OwnSampling, SaysHowTokensAreDrawn) {
  options.request.sampling.top_p = 0.9F;
  EXPECT_EQ(own(R"("temperature":0.5,"top_k":20)").draw, (TokenDraw{0.5F, 20, 0.9F, 0}))
      << "the run's top_p stays";
  EXPECT_EQ(own(R"("temperature":0)").draw, (TokenDraw{0, 0, 0.9F, 0}));
  EXPECT_EQ(own(R"("top_p":1,"min_p":0.05)").draw, (TokenDraw{1, 0, 1, 0.05F}));
  const RequestSampling penal = own(R"("repetition_penalty":1.1,"logit_bias":{"20":-1,"3":0.5})");
  EXPECT_EQ(penal.draw, (TokenDraw{1, 0, 0.9F, 0, 1.1F, 0, 0}));
  EXPECT_EQ(penal.logit_bias, (std::vector<LogitBias>{{3, 0.5F}, {20, -1}}));
  EXPECT_EQ(own(R"("presence_penalty":-2,"frequency_penalty":0.5,"logit_bias":{})").draw,
            (TokenDraw{1, 0, 0.9F, 0, 1, -2, 0.5F}));
  EXPECT_FALSE(own(R"("temperature":1,"top_k":0,"top_p":0.9,"seed":1)").draw)
      << "as the run has it anyway";
  const RequestSampling seeded = own(R"("seed":18446744073709551615)");
  EXPECT_EQ(seeded.seed, ~0ULL);
  EXPECT_FALSE(seeded.draw);
  EXPECT_EQ(parse(R"("seed":0,"temperature":0.7,"top_k":0)").fields.honoured,
            (std::set<std::string>{"seed", "temperature", "top_k"}))
      << "also what the run has: others may score the responses";
  EXPECT_EQ(parse(R"("seed":1,"temperature":0.7,"top_p":0.9,"max_tokens":)" +
                  std::to_string(options.request.sampling.max_tokens))
                .fields.differing,
            std::set<std::string>{"temperature"})
      << "the others repeat the run's";
  EXPECT_FALSE(own(R"("logit_bias":{})").logit_bias);
  options.request.sampling.logit_bias = {{7, -100}};
  EXPECT_FALSE(own(R"("logit_bias":null)").logit_bias);
  EXPECT_EQ(own(R"("logit_bias":{})").logit_bias, std::vector<LogitBias>()) << "clears the run's";
  EXPECT_EQ(own(R"("stop":"a")").stops, (StopSet{{9, kEnd}, {"a"}}));
  EXPECT_EQ(own(R"("stop":["a","b"])").stops, (StopSet{{9, kEnd}, {"a", "b"}}));
}

TEST_F(OwnSampling, SaysHowManyResponsesThereAre) {
  const PromptSet set = parse(R"("n":8)");
  EXPECT_EQ(set.prompts[0].samples, 8U);
  EXPECT_EQ(set.fields.honoured, (std::set<std::string>{"n"}));
  EXPECT_EQ(parse("").prompts[0].samples, 0U);
  EXPECT_TRUE(parse(R"("samples":4)").fields.honoured.empty()) << "as many as to all";
  for (const char* bad : {"0", "-1", "1.5", "\"2\"", "1000001"}) {
    EXPECT_ERROR(DataError, (void)parse(std::string(R"("samples":)") + bad),
                 "'samples': expected a whole number from 1 to 1000000, found");
  }
  EXPECT_ERROR(DataError, (void)parse(R"("n":2,"samples":3)"),
               "'samples': expected samples or n, which mean the same, found both");
}

TEST_F(OwnSampling, HowTokensAreDrawnIsChecked) {
  EXPECT_ERROR(DataError, (void)parse(R"("temperature":-1)"),
               "p.jsonl:1:29: 'temperature': expected 0, or a number from 0.001 to 1000, found -1");
  EXPECT_ERROR(DataError, (void)parse(R"("temperature":1e40)"), "from 0.001 to 1000, found 1e+40");
  EXPECT_ERROR(DataError, (void)parse(R"("temperature":"1")"), "found \"1\"");
  EXPECT_ERROR(DataError, (void)parse(R"("top_p":0)"),
               "'top_p': expected a number above 0 and at most 1, found 0");
  EXPECT_ERROR(DataError, (void)parse(R"("min_p":1)"),
               "'min_p': expected a number from 0 to below 1, found 1");
  EXPECT_ERROR(DataError, (void)parse(R"("top_k":-2)"),
               "'top_k': expected a whole number from 0 to 2147483647, found -2");
  EXPECT_ERROR(DataError, (void)parse(R"("top_k":2.5)"), "found 2.5");
  EXPECT_ERROR(DataError, (void)parse(R"("top_k":18446744073709551615)"), "to 2147483647, found");
  EXPECT_ERROR(DataError, (void)parse(R"("repetition_penalty":0)"),
               "'repetition_penalty': expected a number from 0.01 to 100, found 0");
  EXPECT_ERROR(DataError, (void)parse(R"("logit_bias":[1])"),
               "'logit_bias': expected a map of token ids (whole numbers, at least 0) to numbers "
               "from -100 to 100, found an array of 1");
  EXPECT_ERROR(DataError, (void)parse(R"("logit_bias":{"300":1})"),
               "expected token ids up to 299, found 300");
  EXPECT_ERROR(DataError, (void)parse(R"("logit_bias":{"x":1})"), "found the id 'x'");
  EXPECT_ERROR(DataError, (void)parse(R"("logit_bias":{"5":101})"), "found 101 for 5");
  options.request.sampling.keep_masks = true;
  options.request.sampling.top_k = 50;
  EXPECT_EQ(own(R"("top_k":49)").draw, (TokenDraw{1, 49, 1, 0}));
  EXPECT_ERROR(
      DataError, (void)parse(R"("top_k":51)"),
      "'top_k': expected a whole number from 1 to 50, for sampling.keep_masks has room for "
      "sampling.top_k, found 51");
  EXPECT_ERROR(DataError, (void)parse(R"("top_k":0)"), "from 1 to 50");
  EXPECT_ERROR(DataError, (void)parse(R"("seed":-1)"),
               "'seed': expected a whole number, at least 0, found -1");
  EXPECT_ERROR(DataError, (void)parse(R"("seed":1.5)"), "found 1.5");
  EXPECT_ERROR(DataError, (void)parse(R"("stop":5)"),
               "'stop': expected a text or a list of non-empty texts, found 5");
  EXPECT_ERROR(DataError, (void)parse(R"("stop":"a","stop_strings":["a"])"),
               "'stop_strings': expected stop or stop_strings, which mean the same, found both");
}

TEST_F(OwnSampling, IsCheckedAsTheRunsIs) {
  for (const char* bad :
       {"0", "-1", "1.5", "\"7\"", "true", "[7]", "16777217", "1e3", "99999999999999999999"}) {
    EXPECT_ERROR(DataError, (void)parse(std::string(R"("max_tokens":)") + bad),
                 "p.jsonl:1:28: 'max_tokens': expected a whole number from 1 to 16777216, found");
  }
  options.request.sampling.min_tokens = 8;
  EXPECT_ERROR(DataError, (void)parse(R"("max_tokens":7)"),
               "'max_tokens': expected at least sampling.min_tokens (8), found 7");
  EXPECT_EQ(own(R"("max_tokens":8)").max_tokens, 8);
  EXPECT_ERROR(
      DataError, (void)parse(R"("max_tokens":100)"),
      "'max_tokens': 100 leaves no room for a prompt in the model's context of 100 tokens");
  EXPECT_ERROR(DataError, (void)parse(R"("stop_ids":[3,300])"),
               "p.jsonl:1:26: 'stop_ids': expected a list of token ids (0 to 299), found 300 (the "
               "2. of them)");
  EXPECT_ERROR(DataError, (void)parse(R"("stop_ids":3)"), "a list of token ids", "found 3");
  EXPECT_ERROR(DataError, (void)parse(R"("stop_ids":["a"])"), "found \"a\" (the 1. of them)");
  EXPECT_ERROR(DataError, (void)parse(R"("stop_ids":[-1])"), "found -1");
  EXPECT_ERROR(DataError, (void)parse(R"("stop_strings":"a")"),
               "'stop_strings': expected a list of non-empty texts, found \"a\"");
  EXPECT_ERROR(DataError, (void)parse(R"("stop_strings":["a",""])"), "(the 2. of them)");
  std::string all = "0";
  for (int id = 1; id < 300; ++id) all += "," + std::to_string(id);
  options.request.stops = nullptr;
  EXPECT_ERROR(DataError, (void)parse("\"stop_ids\":[" + all + "]"), "p.jsonl:1:26: 'stop_ids': ",
               "no token could be sampled before sampling.min_tokens (8)");
  for (int id = 0; id < 298; ++id) options.request.sampling.masked.push_back(id);
  EXPECT_ERROR(DataError, (void)parse(R"("stop_ids":[298,299])"),
               "no token could be sampled before sampling.min_tokens (8)");
  EXPECT_ERROR(DataError,
               (void)paceline::io::parse_prompts(R"({"tokens":[5],"stop_strings":["a"]})",
                                                 "p.jsonl", nullptr, nullptr, {}),
               "'stop_strings': needs the text of tokens, and there is no tokenizer");
}

TEST_F(OwnSampling, ItsMaxTokensLeavesRoomForItsPrompt) {
  const auto of = [&](const char* fields) {
    return paceline::io::parse_prompts(
        std::string(R"({"uid":"a","tokens":[1,2,3,4,5])") + fields + "}", "p.jsonl", &tokenizer,
        nullptr, options);
  };
  EXPECT_EQ(of(R"(,"max_tokens":95)").prompts.size(), 1U);
  EXPECT_ERROR(
      DataError, (void)of(R"(,"max_tokens":96)"),
      "prompt 'a' has 5 tokens, the limit is 4 beside its max_tokens of 96 (prompts.overlong");
  options.overlong = Overlong::truncate;
  EXPECT_EQ(of(R"(,"max_tokens":97)").prompts[0].tokens, (Ids{3, 4, 5}));
  options.overlong = Overlong::error;
  options.max_tokens = 4;  // what the run's max_tokens leaves
  EXPECT_ERROR(DataError, (void)of(""), "the limit is 4 (prompts.overlong");
  EXPECT_EQ(of(R"(,"max_tokens":20)").prompts.size(), 1U) << "a shorter response leaves more";
  options.request.context = 0;  // prompts.max_prompt_tokens is set: 4
  EXPECT_ERROR(DataError, (void)of(R"(,"max_tokens":20)"), "the limit is 4 (prompts.overlong");
}

TEST_F(OwnSampling, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_ERROR(DataError, (void)parse(R"("min_tokens":5)"),
               "p.jsonl:1:28: 'min_tokens': cannot be a line's own: expected that of all lines "
               "(sampling.min_tokens) or nothing; as data it can be a part of extra_info");
  EXPECT_ERROR(DataError, (void)parse(R"("stop_words":["x"])"),
               "'stop_words': is stop_strings (texts) or stop_ids (token ids) here");
  EXPECT_ERROR(DataError, (void)parse(R"("max_new_tokens":5)"), "'max_new_tokens': is max_tokens");
  EXPECT_ERROR(DataError, (void)parse(R"("sampling_params":{"n":2})"), "'sampling_params': cannot");
  EXPECT_ERROR(DataError, (void)parse(R"("length_penalty":1.1)"), "is not supported");
  EXPECT_ERROR(DataError, (void)parse(R"("banned_ids":[1])"),
               "'banned_ids': cannot be a line's own: expected that of all lines "
               "(sampling.banned_ids) or nothing");
  EXPECT_ERROR(DataError, (void)parse(R"("images":[{"bytes":"x"}])"),
               "'images': cannot be honoured: the model is given text alone");
  EXPECT_ERROR(DataError, (void)parse(R"("videos":["x.mp4"])"), "'videos': cannot be honoured");
  EXPECT_ERROR(DataError, (void)parse(R"("agent_name":"tool_agent")"),
               "'agent_name': cannot be honoured", "expected 'single_turn_agent' or nothing");
}

TEST_F(OwnSampling, WhatAsksForNothingIsData) {
  for (const char* fields :
       {R"("images":null,"videos":[],"agent_name":null,"sampling_params":{},"stop":null)",
        R"("temperature":1.0,"top_p":1,"top_k":0,"seed":1,"n":4,"ignore_eos":false)",
        R"("agent_name":"single_turn_agent","repetition_penalty":1.0,"stop":[],"n":null)",
        R"("extra_info":{"temperature":0.3,"seed":9},"data_source":"n","tp_size":3)"}) {
    const PromptSet set = parse(fields);
    EXPECT_EQ(set.prompts[0].sampling, RequestSampling{});
    EXPECT_EQ(set.prompts[0].extra_json, "{" + std::string(fields) + "}");
    EXPECT_TRUE(set.fields.ignored.empty());
  }
  options.request.sampling.temperature = 0.7F;
  EXPECT_NO_THROW((void)parse(R"("temperature":0.7)")) << "as the configuration has it";
  // As verl's data of tools has it.
  const PromptSet set = paceline::io::parse_prompts(
      "{\"tokens\":[1]}\n"
      R"({"tokens":[2],"extra_info":{"index":3,"tools_kwargs":{"calc":{"create_kwargs":{}}}}})"
      "\n"
      R"({"tokens":[3],"extra_info":{"tools_kwargs":{"calc":{"a":1}}},"tools_kwargs":{}})",
      "p.jsonl", nullptr, nullptr, {});
  ASSERT_EQ(set.fields.ignored.size(), 1U);
  EXPECT_EQ(set.fields.ignored.at("extra_info.tools_kwargs").lines, 2U);
  EXPECT_EQ(set.fields.ignored.at("extra_info.tools_kwargs").first, 2U);
}

TEST_F(OwnSampling, IsReadAgainFromWhatARunStores) {
  const PromptSet set = parse(R"("max_tokens":7,"stop_ids":[3],"stop_strings":["x"])");
  const std::vector<std::string> all = {"max_tokens", "stop_ids", "stop_strings"};
  EXPECT_EQ(stored_sampling(set.prompts[0], all, options.request, 300), set.prompts[0].sampling);
  const std::vector<std::string> one = {"stop_ids"};
  EXPECT_EQ(stored_sampling(set.prompts[0], one, options.request, 300),
            (RequestSampling{{}, StopSet{{3, kEnd}, {"end"}}}));
  // What the run had anyway is a line's own where another configuration scores.
  const PromptSet alike = parse(R"("temperature":1)");
  EXPECT_EQ(alike.prompts[0].sampling, RequestSampling{});
  paceline::io::RequestOptions other = options.request;
  other.sampling.temperature = 0.5F;
  const std::vector<std::string> said(alike.fields.honoured.begin(), alike.fields.honoured.end());
  EXPECT_EQ(stored_sampling(alike.prompts[0], said, other, 300).draw, TokenDraw{1});
  paceline::Prompt old = set.prompts[0];
  old.extra_json = R"({"max_tokens":"many","temperature":0.3})";
  EXPECT_EQ(stored_sampling(old, {}, options.request, 300), RequestSampling{})
      << "a run that honoured none";
  EXPECT_ERROR(DataError, (void)stored_sampling(old, all, options.request, 300), "prompt '",
               "'max_tokens': expected a whole number");
}

}  // namespace
