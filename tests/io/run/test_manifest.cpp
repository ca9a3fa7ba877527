// The manifest survives every way it is stored, and differences are named.
#include "io/run/manifest.hpp"

#include <functional>

#include "tests/io/run/fixture.hpp"

namespace paceline::io {
namespace {

RunManifest example() { return sample::manifest(sample::prompts(3), 4); }

TEST(Manifest, SurvivesJson) {
  const RunManifest manifest = example();
  const RunManifest read = manifest_from_json(to_json(manifest), "run.json");
  EXPECT_EQ(to_json(read), to_json(manifest));
  EXPECT_EQ(read.sampling.temperature, 0.7F);
  EXPECT_EQ(read.sampling.seed, 18446744073709551615U);
  EXPECT_EQ(read.sampling.stop_strings, manifest.sampling.stop_strings);
  EXPECT_EQ(read.dtype, DType::bf16);
  EXPECT_EQ(read.prompts, 3U);
  EXPECT_EQ(read.samples, 4U);
  EXPECT_EQ(first_difference(read, manifest), std::nullopt);
}

TEST(Manifest, PromptsHaveTheirOwnNumbersOfSamples) {
  RunManifest manifest = example();
  EXPECT_EQ(ResponseOrder(manifest).size(), 12U);
  EXPECT_EQ(ResponseOrder(manifest).at(7), (RequestId{1, 3}));
  EXPECT_EQ(to_json(manifest).find("\"samples\": ["), std::string::npos);
  manifest.own_samples = {2, 2, 4};
  const RunManifest read = manifest_from_json(to_json(manifest), "run.json");
  EXPECT_EQ(read.own_samples, manifest.own_samples);
  const ResponseOrder order(read);
  EXPECT_EQ(order.size(), 8U);
  std::uint64_t place = 0;
  for (std::uint32_t p = 0; p < 3; ++p) {
    for (std::uint32_t s = 0; s < manifest.own_samples[p]; ++s, ++place) {
      EXPECT_EQ(order.place({p, s}), place);
      EXPECT_EQ(order.at(place), (RequestId{p, s}));
    }
    EXPECT_THROW((void)order.place({p, manifest.own_samples[p]}), std::logic_error);
  }
  EXPECT_THROW((void)order.place({3, 0}), std::logic_error);
  EXPECT_THROW((void)order.at(8), std::logic_error);
  EXPECT_THROW((void)ResponseOrder(example()).place({1, 4}), std::logic_error);
  EXPECT_THROW((void)ResponseOrder(example()).place({3, 0}), std::logic_error);
  // Also where the most that any prompt has stays the same.
  RunManifest alike = manifest;
  alike.own_samples.clear();
  EXPECT_TRUE(first_difference(manifest, alike));
  EXPECT_TRUE(first_difference(alike, manifest));
  manifest.own_samples = {2, 2};
  EXPECT_THROW((void)manifest_from_json(to_json(manifest), "run.json"), IoError);
}

TEST(Manifest, NamesTheFirstThingThatDiffers) {
  const std::vector<std::pair<std::function<void(RunManifest&)>, std::string>> cases = {
      {[](auto& m) { m.model_fingerprint = "ff"; },
       "model_fingerprint: \"00112233445566778899aabbccddeeff\", now \"ff\""},
      {[](auto& m) { m.prompts_fingerprint = "ff"; }, "prompts_fingerprint: "},
      {[](auto& m) { m.samples = 5; }, "samples: 4, now 5"},
      {[](auto& m) { m.sampling.seed = 2; }, "seed: 18446744073709551615, now 2"},
      {[](auto& m) { m.weight_version = 13; }, "weight_version: 12, now 13"},
      {[](auto& m) { m.dtype = DType::f32; }, "dtype: \"bf16\", now \"fp32\""},
      {[](auto& m) { m.backend = "cuda"; }, "backend: \"cpu\", now \"cuda\""},
      {[](auto& m) { m.isa = "avx2"; }, "isa: \"avx512_bf16\", now \"avx2\""},
      {[](auto& m) { m.sampling.temperature = 0.8F; }, "sampling.temperature: 0.7, now 0.8"},
      {[](auto& m) { m.sampling.top_k = 40; }, "sampling.top_k: 0, now 40"},
      {[](auto& m) { m.sampling.top_p = 0.9F; }, "sampling.top_p: 1.0, now 0.9"},
      {[](auto& m) { m.sampling.min_p = 0.1F; }, "sampling.min_p: 0.0, now 0.1"},
      {[](auto& m) { m.sampling.min_tokens = 3; }, "sampling.min_tokens: 0, now 3"},
      {[](auto& m) { m.sampling.max_tokens = 9; }, "sampling.max_tokens: 1048576, now 9"},
      {[](auto& m) { m.sampling.ignore_eos = true; }, "sampling.ignore_eos: false, now true"},
      {[](auto& m) { m.sampling.stop_ids = {7}; }, "sampling.stop_ids: [7,8], now [7]"},
      {[](auto& m) { m.sampling.stop_strings = {}; }, "sampling.stop_strings: "},
      {[](auto& m) {
         m.sampling.masked = {3, 4, 5, 9};
       },
       "tokens masked by sampling.unused_ids, banned_ids and allowed_ids: [], now [[3,5],[9,9]]"},
      {[](auto& m) { m.sampling.keep_masks = true; }, "sampling.keep_masks: false, now true"},
      {[](auto& m) { m.sampling.logprobs = 5; }, "sampling.logprobs: 0, now 5"},
      {[](auto& m) { m.sampling.repetition_penalty = 1.1F; },
       "sampling.repetition_penalty: 1.0, now 1.1"},
      {[](auto& m) { m.sampling.presence_penalty = -0.5F; },
       "sampling.presence_penalty: 0.0, now -0.5"},
      {[](auto& m) { m.sampling.frequency_penalty = 2; },
       "sampling.frequency_penalty: 0.0, now 2.0"},
      {[](auto& m) {
         m.sampling.logit_bias = {{3, -100}, {20, 0.1F}};
       },
       R"(sampling.logit_bias: {}, now {"3":-100.0,"20":0.1})"},
  };
  for (const auto& [change, expected] : cases) {
    RunManifest changed = example();
    change(changed);
    const auto found = first_difference(example(), changed);
    ASSERT_TRUE(found.has_value()) << expected;
    EXPECT_EQ(found->substr(0, expected.size()), expected);
    EXPECT_TRUE(first_difference(changed, example())) << expected;
    EXPECT_EQ(first_difference(changed, manifest_from_json(to_json(changed), "run.json")),
              std::nullopt);
  }
  RunManifest harmless = example();
  harmless.config_text = "layout:\n  verifier_tp: 2\nspeculation:\n  drafters: [{method: ngram}]\n";
  harmless.program_version = "0.2.0";
  EXPECT_EQ(first_difference(example(), harmless), std::nullopt);

  RunManifest ends = example();
  ends.stops = {7, 9};
  EXPECT_EQ(first_difference(example(), ends), std::nullopt) << "they were not kept before";
  const RunManifest kept = manifest_from_json(to_json(ends), "run.json");
  EXPECT_EQ(kept.stops, ends.stops);
  ends.stops = {7};
  EXPECT_EQ(first_difference(kept, ends),
            "tokens that end a response (eos_token_id, sampling.stop_ids): [7,9], now [7]");
}

TEST(Manifest, SaysWhatLinesHaveOfTheirOwn) {
  const RunManifest none = example();
  EXPECT_EQ(to_json(none).find("by_line"), std::string::npos) << "as it was before lines had any";
  RunManifest own = example();
  own.by_line = {"max_tokens", "stop_ids"};
  own.longest_response = 2000000;
  const RunManifest read = manifest_from_json(to_json(own), "run.json");
  EXPECT_EQ(read.by_line, own.by_line);
  EXPECT_EQ(read.longest_response, 2000000);
  EXPECT_EQ(first_difference(own, read), std::nullopt);
  // A run whose lines were not honoured when it began, for the program knew no such fields then.
  EXPECT_EQ(first_difference(none, own),
            "sampling.by_line: null, now [\"max_tokens\",\"stop_ids\"]");
}

TEST(Manifest, WhatLinesOnlyRepeatMayBeUnnamedInAnEarlierVersionsRun) {
  const RunManifest none = example();
  RunManifest own = example();
  own.longest_response = own.sampling.max_tokens;
  own.by_line = own.repeated = {"max_tokens", "temperature"};
  EXPECT_EQ(first_difference(none, own), std::nullopt);
  EXPECT_EQ(first_difference(own, own), std::nullopt);
  RunManifest then = own;
  then.by_line = {"max_tokens"};
  EXPECT_EQ(first_difference(then, own), std::nullopt);
  own.repeated = {"max_tokens"};
  EXPECT_EQ(first_difference(none, own), "sampling.by_line: null, now [\"temperature\"]");
}

TEST(Manifest, BadTextIsAnErrorThatNamesTheFile) {
  for (const std::string text : {"", "{", "[]", "{\"schema_version\": 1}",
                                 "{\"schema_version\": 9}", "{\"schema_version\": \"x\"}"}) {
    const std::string message =
        message_of<IoError>([&] { static_cast<void>(manifest_from_json(text, "D/run.json")); });
    EXPECT_EQ(message.substr(0, 11), "D/run.json:") << message;
  }
}

TEST(Manifest, DamagedNumbersAreErrorsOfTheFile) {
  RunManifest manifest = example();
  manifest.own_samples = {2, 2, 4};
  manifest.sampling.logit_bias = {{12, 1}};
  const std::string sound = to_json(manifest);
  const auto damaged = [&](const std::string& from, const std::string& to) {
    std::string text = sound;
    for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
    EXPECT_NE(text, sound) << from;
    EXPECT_THROW((void)manifest_from_json(text, "run.json"), IoError) << to;
  };
  damaged("\"prompts\": 3", "\"prompts\": 9223372036854775807");
  damaged("\"12\"", "\"12abc\"");
  std::string text = sound;  // both counts alike
  text.replace(text.find("\"prompts\": 3"), 12, "\"prompts\": 4611686018427387905");
  const std::size_t run = text.find("[", text.find("\"samples\": [") + 12);
  text.replace(text.find(",", run) + 1, text.find("]", run) - text.find(",", run) - 1,
               "4611686018427387904");
  EXPECT_THROW((void)manifest_from_json(text, "run.json"), IoError);
}

TEST(Manifest, PromptsFingerprintSeesEveryField) {
  const auto base = sample::prompts(4);
  const std::string expected = prompts_fingerprint(base);
  EXPECT_EQ(expected.size(), 32U);
  EXPECT_EQ(prompts_fingerprint(sample::prompts(4)), expected);
  for (int field = 0; field < 6; ++field) {
    auto changed = base;
    if (field == 0) changed[2].uid += "x";
    if (field == 1) changed[2].tokens.back() += 1;
    if (field == 2) changed[2].ground_truth += "x";
    if (field == 3) changed[2].extra_json += " ";
    if (field == 4) std::swap(changed[0], changed[1]);
    if (field == 5) changed[2].pictures.push_back({{1, 2}, {4, 6}, 0});
    EXPECT_NE(prompts_fingerprint(changed), expected) << field;
  }
}

}  // namespace
}  // namespace paceline::io
