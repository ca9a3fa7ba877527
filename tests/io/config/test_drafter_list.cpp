// speculation.drafters, and what the section's keys must be to each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "io/config/run_config.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

const std::string required = "model: {path: m}\nprompts: {path: p.jsonl}\noutput: {directory: o}\n";

RunConfig parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_run_config(required + text, "run.yaml", "/base", overrides);
}
std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return test::message_of<UsageError>([&] { (void)parse(text, overrides); });
}
// The error of a list on line 5, which begins in column 13.
std::string error_list(const std::string& list) {
  return error_of("speculation:\n  drafters: " + list + "\n");
}

TEST(DrafterList, IsEmptyByDefault) {
  EXPECT_TRUE(parse("").speculation.drafters.empty());
  EXPECT_NE(parse("").text.find("  drafters: []\n"), std::string::npos);
  EXPECT_EQ(parse("").speculation.policy, SpeculationPolicy::goodput);
  EXPECT_EQ(parse("").speculation.max_tokens(), std::nullopt);
}

TEST(DrafterList, DefaultsAreOfTheMethod) {
  const auto drafters =
      parse("speculation: {drafters: [{method: ngram}, {method: suffix}]}\n").speculation.drafters;
  ASSERT_EQ(drafters.size(), 2U);
  EXPECT_EQ(drafters[0].method, DrafterMethod::ngram);
  EXPECT_EQ(drafters[0].min_match, 2);
  EXPECT_EQ(drafters[0].max_match, 5);
  EXPECT_EQ(drafters[1], DrafterSetting{});
}

TEST(DrafterList, ReadsEveryKeyAndReadsBack) {
  const RunConfig config = parse(R"(
speculation:
  drafters:
    - {method: model, path: small, name: trained along}
    - method: suffix
      min_match: 3
      max_match: 20
      min_probability: 0.25
      depth: 48
      max_memory: 512MiB
    - {max_match: 4, method: ngram, min_match: 4}
    - {method: model, path: "/abs/é \"quoted\""}
    - {method: eagle3, path: head}
)");
  const auto& drafters = config.speculation.drafters;
  ASSERT_EQ(drafters.size(), 5U);
  EXPECT_EQ(drafters[4].method, DrafterMethod::eagle3);
  EXPECT_EQ(drafters[4].path, "/base/head");
  EXPECT_EQ(drafters[0].method, DrafterMethod::model);
  EXPECT_EQ(drafters[0].path, "/base/small");
  EXPECT_EQ(drafters[0].name, "trained along");
  EXPECT_EQ(drafters[3].name, std::nullopt);
  EXPECT_EQ(drafters[1].method, DrafterMethod::suffix);
  EXPECT_EQ(drafters[1].min_match, 3);
  EXPECT_EQ(drafters[1].max_match, 20);
  EXPECT_EQ(drafters[1].min_probability, 0.25);
  EXPECT_EQ(drafters[1].depth, 48);
  EXPECT_EQ(drafters[1].max_memory, 512ULL << 20);
  EXPECT_EQ(drafters[2].method, DrafterMethod::ngram);
  EXPECT_EQ(drafters[2].min_match, 4);
  EXPECT_EQ(drafters[2].max_match, 4);
  EXPECT_EQ(drafters[3].path, "/abs/é \"quoted\"");

  const RunConfig again = parse_run_config(config.text, "again.yaml", "/elsewhere", {});
  EXPECT_EQ(again.text, config.text);
  EXPECT_EQ(again.speculation.drafters, drafters);
}

TEST(DrafterList, AnOverrideReplacesTheList) {
  const RunConfig config =
      parse("speculation: {drafters: [{method: ngram}]}\n",
            {"speculation.drafters=[{method: suffix}, {method: model, path: x}]"});
  const auto& drafters = config.speculation.drafters;
  ASSERT_EQ(drafters.size(), 2U);
  EXPECT_EQ(drafters[0].method, DrafterMethod::suffix);
  EXPECT_EQ(drafters[1].path, (std::filesystem::current_path() / "x").string());
  const std::string bad = "speculation.drafters=[{method: model}]";
  EXPECT_EQ(error_of("", {bad}),
            "--set " + bad +
                ": speculation.drafters[0]: expected the key path: the path of a directory, found "
                "a map");
}

TEST(DrafterList, ErrorsNameTheEntryAndItsPlace) {
  const std::string at = "run.yaml:5:";
  const std::string key = ": speculation.drafters";
  EXPECT_EQ(error_list("ngram"),
            at + "13" + key +
                ": expected a list of drafters, each {method: ..., ...}, found "
                "'ngram'");
  EXPECT_EQ(error_list(""), "run.yaml:5:3" + key +
                                ": expected a list of drafters, each {method: ..., ...}, found "
                                "nothing");
  EXPECT_EQ(error_list("[ngram]"), at + "14" + key +
                                       "[0]: expected a map with the key method: one of dflash, "
                                       "eagle3, model, mtp, ngram, suffix, found 'ngram'");
  EXPECT_EQ(error_list("[{method: sufix}]"), at + "23" + key +
                                                 "[0].method: expected one of dflash, eagle3, "
                                                 "model, mtp, ngram, suffix, found 'sufix'; did "
                                                 "you mean 'suffix'?");
  EXPECT_EQ(error_list("[{method: ngram, min_mach: 2}]"),
            at + "30" + key +
                "[0]: expected the keys of method ngram: one of method, min_match, "
                "max_match, found 'min_mach'; did you mean 'min_match'?");
  EXPECT_EQ(error_list("[{method: suffix}, {path: x, method: ngram}]"),
            at + "33" + key +
                "[1]: expected the keys of method ngram: one of method, min_match, "
                "max_match, found 'path'");
  EXPECT_EQ(error_list("[{method: ngram, max_match: 65}]"),
            at + "41" + key + "[0].max_match: expected a whole number from 1 to 64, found '65'");
  EXPECT_EQ(error_list("[{method: ngram, max_match: }]"),
            at + "30" + key + "[0].max_match: expected a whole number from 1 to 64, found nothing");
  EXPECT_EQ(error_list("[{method: suffix, min_probability: 1.5}]"),
            at + "48" + key + "[0].min_probability: expected a number from 0 to 1, found '1.5'");
  EXPECT_EQ(error_list("[{method: suffix, max_memory: 5}]")
                .find(at + "43" + key + "[0].max_memory: expected a size"),
            0U);
  EXPECT_EQ(error_list("[{method: model, path: \"\"}]"),
            at + "36" + key + "[0].path: expected the path of a directory, found '' in quotes");
}

TEST(DrafterList, ShortestMatchIsNotAboveLongest) {
  const std::string key = ": speculation.drafters[0].";
  EXPECT_EQ(error_list("[{method: ngram, min_match: 6, max_match: 4}]"),
            "run.yaml:5:41" + key + "min_match: expected at most max_match (4), found '6'");
  EXPECT_EQ(error_list("[{method: ngram, max_match: 1}]"),
            "run.yaml:5:41" + key + "max_match: expected at least min_match (2), found '1'");
}

TEST(DrafterList, OnlyModelsComeTwice) {
  EXPECT_EQ(error_list("[{method: ngram}, {method: suffix}, {method: ngram}]"),
            "run.yaml:5:58: speculation.drafters[2]: expected one drafter of this method at most "
            "(several may be of method model), found 'ngram'");
  EXPECT_EQ(error_list("[{method: suffix}, {method: suffix}]").find("run.yaml:5:41:"), 0U);
  EXPECT_NO_THROW((void)parse(
      "speculation: {drafters: [{method: model, path: a}, {method: model, path: a}]}\n"));
}

TEST(DrafterList, NamesArePrinted) {
  for (const char* name : {"' '", "\"a\\nb\"", "' a'", "'a '"}) {
    const std::string error =
        error_list("[{method: model, path: a, name: " + std::string(name) + "}]");
    EXPECT_NE(error.find("drafters[0].name: expected a name without line feeds"), std::string::npos)
        << name << error;
  }
  const std::vector<DrafterSetting> drafters =
      parse("speculation: {drafters: [{method: model, path: a//, name: é b}]}\n")
          .speculation.drafters;
  EXPECT_EQ(drafters[0].name, "é b");
  EXPECT_TRUE(drafters[0].path.ends_with("/a"));
}

TEST(DrafterList, OneHeadAtMost) {
  const auto drafters =
      parse("speculation: {drafters: [{method: mtp, noise: true, max_tokens: 7}]}\n")
          .speculation.drafters;
  ASSERT_EQ(drafters.size(), 1U);
  EXPECT_EQ(drafters[0].method, DrafterMethod::mtp);
  EXPECT_TRUE(drafters[0].noise);
  EXPECT_EQ(drafters[0].max_tokens, 7);
  EXPECT_EQ(error_list("[{method: mtp, path: x}]"),
            "run.yaml:5:28: speculation.drafters[0]: expected the keys of method mtp: one of "
            "method, stop, noise, max_tokens, record_stops, found 'path'");
  EXPECT_EQ(error_list("[{method: mtp}, {method: eagle3, path: h}]"),
            "run.yaml:5:38: speculation.drafters[1]: expected one head at most, of dflash, eagle3 "
            "and mtp, found 'eagle3'");
  EXPECT_TRUE(parse("speculation: {drafters: [{method: dflash, path: h, noise: true}]}\n")
                  .speculation.drafters[0]
                  .is_head());
  EXPECT_EQ(error_list("[{method: dflash}]"),
            "run.yaml:5:14: speculation.drafters[0]: expected the key path: the path of a "
            "directory, found a map");
  EXPECT_EQ(error_list("[{method: dflash, path: h, stop: s}]"),
            "run.yaml:5:40: speculation.drafters[0]: expected the keys of method dflash: one of "
            "method, path, name, noise, max_tokens, found 'stop'");
}

TEST(Speculation, KeysThatMustFitTogether) {
  EXPECT_EQ(error_of("speculation: {max_length: 4, paths: 2, drafters: [{method: eagle3, path: h, "
                     "max_tokens: 9}]}\n"),
            "run.yaml:4:50: speculation.drafters: expected max_tokens of at most "
            "speculation.max_length * speculation.paths (8), found 9");
  EXPECT_EQ(
      error_of(
          "speculation: {max_length: 46, drafters: [{method: suffix, depth: 48, min_match: 3}]}\n"),
      "run.yaml:4:27: speculation.max_length: expected at most the suffix drafter's depth - "
      "min_match (45), found 46");
  EXPECT_NO_THROW(
      (void)parse("speculation: {max_length: 45, drafters: [{method: suffix, depth: 48, "
                  "min_match: 3, servers: 2}]}\n"));
  const std::string recorded =
      "speculation: {drafters: [{method: eagle3, path: h, record_stops: 16}], policy: fixed, "
      "paths: ";
  EXPECT_NO_THROW((void)parse(recorded + "10}\n"));
  EXPECT_EQ(error_of(recorded + "9}\n")
                .find("run.yaml:4:94: speculation.paths: expected 10 where "
                      "its head has record_stops, found 9"),
            0U)
      << error_of(recorded + "9}\n");
  EXPECT_NE(error_of(recorded + "10, max_length: 7}\n")
                .find("speculation.max_length: expected 8 where its head has record_stops"),
            std::string::npos);
  const std::string beside = error_of(
      "speculation: {drafters: [{method: ngram}, {method: eagle3, path: h, record_stops: 16}], "
      "paths: 10}\n");
  EXPECT_NE(beside.find("speculation.policy: expected fixed"), std::string::npos);
  EXPECT_NE(beside.find("speculation.drafters: expected one drafter, of method eagle3 or mtp"),
            std::string::npos);
  EXPECT_NE(error_of(recorded + "10, mode: plain}\n").find("speculation.mode: expected auto or"),
            std::string::npos);
  EXPECT_EQ(error_of("speculation: {drafter: []}\n"),
            "run.yaml:4:15: unknown key 'drafter' in section 'speculation'; did you mean "
            "'drafters'?");
}

}  // namespace
}  // namespace paceline::io
