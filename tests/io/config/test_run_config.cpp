#include "io/config/run_config.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "io/config/key_table.hpp"
#include "tests/io/expect_error.hpp"

namespace paceline::io {
namespace {

const std::string required = "model: {path: m}\nprompts: {path: p.jsonl}\noutput: {directory: o}\n";

RunConfig parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_run_config(text, "run.yaml", "/base", overrides);
}
std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return test::message_of<UsageError>([&] { (void)parse(text, overrides); });
}
// How a key is written: within a group, by its last name alone.
std::string line_start(const Key& key) {
  return std::string(key.name.substr(key.name.rfind('.') + 1)) + ": ";
}
// The error of one further section after the required ones; it begins at line 4.
std::string error_with(const std::string& text) { return error_of(required + text); }
std::string error_set(const std::string& override_text) {
  return error_of(required, {override_text});
}

TEST(RunConfig, DefaultsAreTheHeaders) {
  const RunConfig config = parse(required);
  EXPECT_EQ(config.model.path, "/base/m");
  EXPECT_EQ(config.prompts.path, "/base/p.jsonl");
  EXPECT_EQ(config.output.directory, "/base/o");
  EXPECT_EQ(config.model.dtype, std::nullopt);
  EXPECT_EQ(config.sampling.temperature, 1.0F);
  EXPECT_EQ(config.sampling.max_tokens, 1024);
  EXPECT_EQ(config.engine.kv_block, 32);
  EXPECT_EQ(config.engine.kv_memory, std::nullopt);
  EXPECT_EQ(config.limits.margin, 30.0);
  EXPECT_EQ(config.limits.stall, 600.0);
}

TEST(RunConfig, ReadsEveryKey) {
  const RunConfig c = parse(R"(
model: {path: /abs/m, dtype: fp32, weight_version: 18446744073709551615}
prompts: {path: ../p, samples: 16, overlong: truncate, max_prompt_tokens: 77, shuffle: true}
sampling:
  temperature: 0.7
  top_k: 50
  top_p: 0.95
  min_p: 0.05
  repetition_penalty: 1.1
  presence_penalty: -2
  frequency_penalty: 0.5
  logit_bias: {11: -100, 7: 0.25}
  allowed_ids: [3, 4]
  min_tokens: 3
  max_tokens: 100
  seed: 12345678901234567890
  ignore_eos: true
  stop_ids: [7, 8]
  stop_strings: ["\n\nQ:", é]
layout: {verifier_tp: 2, verifier_groups: 3, drafters: 0}
engine:
  backend: cpu
  isa: avx2
  threads: 4
  max_batch: 32
  prefill_chunk: 128
  kv_block: 48
  kv_memory: 2GiB
speculation: {drafters: [{method: ngram}], policy: fixed, max_length: 4, paths: 2,
              window: 3, mode: coupled}
schedule: {chunk: 512, rebalance: false, move_kv: both}
reward: {method: command, ground_truth: extra_info.answer, rule: regex, pattern: "a|(b)?",
         tolerance: 0.5, command: [python3, ../score.py, ./r.py, "", -x], workers: 3,
         timeout: 5m, attempts: 4, send_tokens: true, required: all}
environment: {method: command, command: [./talk], workers: 5, timeout: 3m, attempts: 3,
              max_turns: 4, max_tokens_turn: 100}
output: {directory: o, flush_seconds: 0.5}
limits: {wall_clock: 02:00:00, margin: 1m, stall: none}
test: {shuffle: [roles, races], faults: {kill: 2.5, drafters: flood}}
)");
  EXPECT_EQ(c.model.path, "/abs/m");
  EXPECT_EQ(c.model.dtype, DType::f32);
  EXPECT_EQ(c.model.weight_version, 18446744073709551615U);
  EXPECT_EQ(c.prompts.path, "/base/../p");
  EXPECT_EQ(c.prompts.samples, 16);
  EXPECT_EQ(c.prompts.overlong, Overlong::truncate);
  EXPECT_EQ(c.prompts.max_prompt_tokens, 77);
  EXPECT_TRUE(c.prompts.shuffle);
  EXPECT_EQ(c.sampling.temperature, 0.7F);
  EXPECT_EQ(c.sampling.top_k, 50);
  EXPECT_EQ(c.sampling.top_p, 0.95F);
  EXPECT_EQ(c.sampling.min_p, 0.05F);
  EXPECT_EQ(c.sampling.draw(), (TokenDraw{0.7F, 50, 0.95F, 0.05F, 1.1F, -2, 0.5F}));
  EXPECT_EQ(c.sampling.logit_bias, (std::vector<LogitBias>{{7, 0.25F}, {11, -100}}));
  EXPECT_EQ(c.sampling.allowed_ids, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(c.sampling.min_tokens, 3);
  EXPECT_EQ(c.sampling.max_tokens, 100);
  EXPECT_EQ(c.sampling.seed, 12345678901234567890U);
  EXPECT_TRUE(c.sampling.ignore_eos);
  EXPECT_EQ(c.sampling.stop_ids, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(c.sampling.stop_strings, (std::vector<std::string>{"\n\nQ:", "é"}));
  EXPECT_EQ(c.layout.verifier_tp, std::vector<std::int32_t>{2});
  EXPECT_EQ(c.layout.verifier_groups, 3);
  EXPECT_EQ(c.layout.drafters, 0);
  EXPECT_EQ(c.engine.backend, "cpu");
  EXPECT_EQ(c.engine.isa, "avx2");
  EXPECT_EQ(c.engine.threads, 4);
  EXPECT_EQ(c.engine.max_batch, 32);
  EXPECT_EQ(c.engine.prefill_chunk, 128);
  EXPECT_EQ(c.engine.kv_block, 48);
  EXPECT_EQ(c.engine.kv_memory, 2ULL << 30);
  EXPECT_EQ(c.speculation.drafters.size(), 1U);
  EXPECT_EQ(c.speculation.policy, SpeculationPolicy::fixed);
  EXPECT_EQ(c.speculation.max_length, 4);
  EXPECT_EQ(c.speculation.paths, 2);
  EXPECT_EQ(c.speculation.window, 3);
  EXPECT_EQ(c.speculation.mode, SpeculationMode::coupled);
  EXPECT_EQ(c.schedule.chunk, 512);
  EXPECT_FALSE(c.schedule.rebalance);
  EXPECT_TRUE(c.test.shuffles(Shuffle::roles) && !c.test.shuffles(Shuffle::moves));
  EXPECT_EQ(c.test.faults.kill, 2.5);
  EXPECT_EQ(c.test.faults.drafters, "flood");
  EXPECT_EQ(c.schedule.move_kv, MoveKvBy::both);
  EXPECT_EQ(c.reward.method, RewardMethod::command);
  EXPECT_EQ(c.reward.ground_truth, "extra_info.answer");
  EXPECT_EQ(c.reward.rule, (AnswerRules{AnswerRule::regex, {}}));
  EXPECT_EQ(c.reward.pattern, "a|(b)?");
  EXPECT_EQ(c.reward.tolerance, 0.5);
  EXPECT_EQ(c.reward.command,
            (std::vector<std::string>{"python3", "/base/../score.py", "/base/r.py", "", "-x"}));
  EXPECT_EQ(c.reward.workers, 3);
  EXPECT_EQ(c.reward.timeout, 300);
  EXPECT_EQ(c.reward.attempts, 4);
  EXPECT_TRUE(c.converses());
  EXPECT_EQ(c.environment.command.size(), 1U);
  EXPECT_EQ(c.environment.workers, 5);
  EXPECT_EQ(c.environment.timeout, 180);
  EXPECT_EQ(c.environment.attempts, 3);
  EXPECT_EQ(c.environment.max_turns, 4);
  EXPECT_EQ(c.environment.max_tokens_turn, 100);
  EXPECT_TRUE(c.reward.send_tokens);
  EXPECT_EQ(c.reward.required, RewardsRequired::all);
  EXPECT_EQ(c.output.flush_seconds, 0.5);
  EXPECT_EQ(c.limits.wall_clock, 7200.0);
  EXPECT_EQ(c.limits.margin, 60.0);
  EXPECT_EQ(c.limits.stall, std::nullopt);
}

TEST(RunConfig, EffectiveTextHasEveryKeyAndReadsBack) {
  const RunConfig config = parse(
      required, {"sampling.stop_strings=[\"a\\n\\\"b\\\"\", '# é: x']", "sampling.temperature=0.1",
                 "engine.kv_memory=1.5GiB", "limits.wall_clock=1h30m", "sampling.stop_ids=[1, 2]"});
  for (const Key& key : key_table()) {
    EXPECT_NE(config.text.find("  " + line_start(key)), std::string::npos) << key.name;
  }
  EXPECT_NE(config.text.find("  kv_memory: 1610612736\n"), std::string::npos);
  EXPECT_NE(config.text.find("  wall_clock: 5400\n"), std::string::npos);
  EXPECT_NE(config.text.find("  temperature: 0.1\n"), std::string::npos);
  EXPECT_NE(config.text.find("  path: \"/base/m\"\n"), std::string::npos);
  const RunConfig again = parse_run_config(config.text, "again.yaml", "/elsewhere", {});
  EXPECT_EQ(again.text, config.text);
  EXPECT_EQ(again.sampling.stop_strings, config.sampling.stop_strings);
  EXPECT_EQ(again.sampling.temperature, config.sampling.temperature);
  EXPECT_EQ(again.model.path, "/base/m");
}

TEST(RunConfig, UnknownNames) {
  EXPECT_EQ(error_with("sampling:\n  temprature: 1\n"),
            "run.yaml:5:3: unknown key 'temprature' in section 'sampling'; did you mean "
            "'temperature'?");
  EXPECT_EQ(error_with("sampler: {}\n"),
            "run.yaml:4:1: unknown section 'sampler'; did you mean 'sampling'?");
  EXPECT_EQ(error_with("layout: {max_batch: 3}\n"),
            "run.yaml:4:10: unknown key 'max_batch' in section 'layout'; it belongs to section "
            "'engine'");
  EXPECT_EQ(error_with("reward: {zzzzzzzzzz: 3}\n"),
            "run.yaml:4:10: unknown key 'zzzzzzzzzz' in section 'reward'; there are method, "
            "ground_truth, rule, pattern, tolerance, command, workers, timeout, attempts, "
            "send_tokens, required");
  EXPECT_EQ(error_with("<<: {}\n").find("run.yaml:4:1: unknown section '<<'"), 0U);
}

TEST(RunConfig, KeysOfEarlierVersionsAreToldByWhatTookTheirPlace) {
  EXPECT_EQ(error_with("simulation:\n  seed: 3\n"),
            "run.yaml:5:3: unknown key 'seed' in section 'simulation'; it is sampling.seed");
  EXPECT_EQ(error_set("simulation.tiers.disk_latency=1e-4"),
            "--set simulation.tiers.disk_latency=1e-4: unknown key 'tiers.disk_latency' in section "
            "'simulation'; it is no key any more: host memory and disks are those of a DGX H100");
  EXPECT_EQ(error_with("simulation: {faults: {kill: 3}}\n"),
            "run.yaml:4:14: unknown key 'faults' in section 'simulation'; it is test.faults");
  EXPECT_EQ(error_set("schedule.shuffle=true"),
            "--set schedule.shuffle=true: unknown key 'shuffle' in section 'schedule'; it is "
            "test.shuffle: [moves]");
}

TEST(RunConfig, FaultsOfTests) {
  EXPECT_EQ(error_set("test.faults={delayed: 2}"),
            "--set test.faults={delayed: 2}: test.faults.delayed: expected a number from 0 to 1, "
            "found '2'");
  EXPECT_NE(error_set("test.faults={kil: 2}").find("found 'kil'; did you mean 'kill'?"),
            std::string::npos);
  EXPECT_NE(error_set("test.shuffle=[role]").find("found 'role'; did you mean 'roles'?"),
            std::string::npos);
}

TEST(RunConfig, PenaltiesAndBiases) {
  EXPECT_EQ(error_with("sampling: {repetition_penalty: 0}\n"),
            "run.yaml:4:32: sampling.repetition_penalty: expected a number from 0.01 to 100, found "
            "'0'");
  EXPECT_EQ(error_with("sampling: {presence_penalty: 3}\n"),
            "run.yaml:4:30: sampling.presence_penalty: expected a number from -2 to 2, found '3'");
  const std::string biases =
      "sampling.logit_bias: expected a map of token ids (whole numbers, at least 0) to numbers "
      "from "
      "-100 to 100, found ";
  EXPECT_TRUE(parse(required + "sampling: {logit_bias: {}}\n").sampling.logit_bias.empty());
  EXPECT_EQ(error_with("sampling: {logit_bias: [5]}\n").find("run.yaml:4:24: " + biases), 0U);
  EXPECT_EQ(error_with("sampling: {logit_bias: {x: 5}}\n"), "run.yaml:4:25: " + biases + "'x'");
  EXPECT_EQ(error_with("sampling: {logit_bias: {7: 101}}\n"),
            "run.yaml:4:28: sampling.logit_bias: expected a number from -100 to 100, found '101'");
}

TEST(RunConfig, EnoughPromptsNeedAFilterRewardsAndSamples) {
  const auto text = [](const std::string& prompts, const std::string& rest) {
    return "model: {path: m}\noutput: {directory: o}\nprompts: {path: p.jsonl, " + prompts + "}\n" +
           rest;
  };
  const std::string match = "reward: {method: match}\n";
  const std::string both = "samples: 2, enough: 8, filter: mixed_rewards";
  EXPECT_EQ(parse(text(both, match)).prompts.enough, 8);
  EXPECT_EQ(parse(text(both, "environment: {method: command, command: [x]}\n")).prompts.enough, 8)
      << "it gives rewards";
  EXPECT_EQ(error_of(text(both, "")),
            "run.yaml: reward.method: expected match or command where prompts.enough is set, for "
            "rewards say which prompts count, found none");
  EXPECT_EQ(error_of(text("samples: 1, enough: 8, filter: mixed_rewards", match)),
            "run.yaml:3:35: prompts.samples: expected at least 2 where prompts.enough is set, for "
            "one reward is like itself, found 1");
  EXPECT_EQ(error_of(text("samples: 2, enough: 8", match)),
            "run.yaml: prompts.filter: expected mixed_rewards where prompts.enough is set, found "
            "none");
  EXPECT_EQ(error_of(text("samples: 2, filter: mixed_rewards", match)),
            "run.yaml: prompts.enough: expected a number of prompts where prompts.filter is "
            "mixed_rewards, found none");
  const RunConfig carries = parse(text(both + ", partial: keep, begun: runs/1", match));
  EXPECT_EQ(carries.prompts.partial, PartialResponses::keep);
  EXPECT_EQ(carries.prompts.begun, "/base/runs/1");
  EXPECT_EQ(
      error_of(text("samples: 2, partial: keep", match)),
      "run.yaml:3:47: prompts.partial: expected drop where prompts.enough is none, found keep");
  EXPECT_EQ(
      error_of(text("samples: 2, begun: r", match)),
      "run.yaml:3:45: prompts.begun: expected none where prompts.enough is none, found /base/r");
  EXPECT_EQ(error_of(text(both + ", begun: r", match + "sampling: {keep_routing: true}\n")),
            "run.yaml:5:26: sampling.keep_routing: expected false where responses are carried from "
            "run to run (prompts.partial, prompts.begun), found true");
  EXPECT_EQ(error_of(text(both, match + "schedule: {policy: group}\n")),
            "run.yaml:5:20: schedule.policy: expected another than group where prompts.enough is "
            "set, for that deals all prompts out beforehand, found 'group'");
  EXPECT_EQ(error_of(text(both, "reward: {method: command, command: [x], timeout: 400}\n")),
            "run.yaml:4:50: reward.timeout: expected less than limits.stall (600 seconds) with all "
            "of reward.attempts where prompts.enough is set, found 400");
}

TEST(RunConfig, NamesOfOtherEnginesAreToldByTheirNamesHere) {
  EXPECT_EQ(error_with("sampling: {stop: ['x']}\n"),
            "run.yaml:4:12: unknown key 'stop' in section 'sampling'; it is sampling.stop_strings "
            "(texts) or sampling.stop_ids (token ids) here");
  EXPECT_EQ(error_with("sampling: {n: 4}\n"),
            "run.yaml:4:12: unknown key 'n' in section 'sampling'; it is prompts.samples here");
  EXPECT_EQ(error_with("sampling: {length_penalty: 1.1}\n"),
            "run.yaml:4:12: unknown key 'length_penalty' in section 'sampling'; it is not "
            "supported");
  EXPECT_EQ(error_with("sampling: {allowed_token_ids: [1]}\n"),
            "run.yaml:4:12: unknown key 'allowed_token_ids' in section 'sampling'; it is "
            "sampling.allowed_ids here");
  EXPECT_EQ(error_with("engine: {max_new_tokens: 9}\n"),
            "run.yaml:4:10: unknown key 'max_new_tokens' in section 'engine'; it is "
            "sampling.max_tokens here");
  EXPECT_EQ(error_with("speculation: {reconfigure: 1000}\n"),
            "run.yaml:4:15: unknown key 'reconfigure' in section 'speculation'; it is no key any "
            "more: rollouts were no faster by modes and windows of single requests");
  EXPECT_EQ(error_with("n: 4\n"), "run.yaml:4:1: unknown section 'n'; it is prompts.samples here");
  EXPECT_EQ(error_set("n=4"), "--set n=4: expected SECTION.KEY=VALUE; 'n' is prompts.samples here");
  EXPECT_EQ(error_with("sampling: {top_k: -1}\n"),
            "run.yaml:4:19: sampling.top_k: expected a whole number, at least 0, found '-1'; 0 is "
            "off here");
  EXPECT_EQ(error_with("sampling: {top_k: -2}\n"),
            "run.yaml:4:19: sampling.top_k: expected a whole number, at least 0, found '-2'");
  EXPECT_EQ(error_with("sampling: {stop_string: ['x']}\n"),
            "run.yaml:4:12: unknown key 'stop_string' in section 'sampling'; did you mean "
            "'stop_strings'?");
}

TEST(RunConfig, WrongTypesAndRanges) {
  const std::string s = "run.yaml:4:";
  EXPECT_EQ(
      error_with("sampling: {temperature: hot}\n"),
      s + "25: sampling.temperature: expected 0, or a number from 0.001 to 1000, found 'hot'");
  EXPECT_EQ(error_with("sampling: {top_p: 0}\n"),
            s + "19: sampling.top_p: expected a number above 0 and at most 1, found '0'");
  EXPECT_EQ(error_with("sampling: {top_p: 1.5}\n"),
            s + "19: sampling.top_p: expected a number above 0 and at most 1, found '1.5'");
  EXPECT_EQ(error_with("sampling: {min_p: 1}\n"),
            s + "19: sampling.min_p: expected a number from 0 to below 1, found '1'");
  EXPECT_EQ(
      error_with("sampling: {top_k: -1}\n"),
      s + "19: sampling.top_k: expected a whole number, at least 0, found '-1'; 0 is off here");
  EXPECT_EQ(error_with("sampling: {top_k: 2.0}\n"),
            s + "19: sampling.top_k: expected a whole number, at least 0, found '2.0'");
  EXPECT_EQ(error_with("sampling: {top_k: \"2\"}\n"),
            s + "19: sampling.top_k: expected a whole number, at least 0, found '2' in quotes");
  EXPECT_EQ(error_with("sampling: {seed: 18446744073709551616}\n"),
            s + "18: sampling.seed: expected a whole number, at least 0, found "
                "'18446744073709551616'; the largest is 18446744073709551615");
  EXPECT_EQ(error_with("sampling: {top_k: 9223372036854775807}\n"),
            s + "19: sampling.top_k: expected a whole number, at least 0, found "
                "'9223372036854775807'; the largest is 2147483647");
  EXPECT_EQ(error_with("sampling: {max_tokens: 99999999999}\n"),
            s + "24: sampling.max_tokens: expected a whole number from 1 to 16777216, found "
                "'99999999999'");
  EXPECT_EQ(error_with("sampling: {ignore_eos: yes}\n"),
            s + "24: sampling.ignore_eos: expected true or false, found 'yes'");
  EXPECT_EQ(error_with("sampling: {stop_ids: [1, -2]}\n"),
            s + "26: sampling.stop_ids: expected a whole number, at least 0, found '-2'");
  EXPECT_EQ(error_with("sampling: {stop_ids: 5}\n"),
            s + "22: sampling.stop_ids: expected a list of token ids (whole numbers, at least 0), "
                "found '5'");
  EXPECT_EQ(error_with("sampling: {stop_strings: [\"\"]}\n"),
            s + "27: sampling.stop_strings: expected non-empty text, found '' in quotes");
  EXPECT_EQ(error_with("prompts: {}\n").find("run.yaml:4:1: duplicate key 'prompts'"), 0U);
  EXPECT_EQ(
      error_with("layout: {verifier_tp: 3}\n"),
      s + "23: layout.verifier_tp: expected auto, or a power of two from 1 to 64, or a list of "
          "such, found '3'");
  EXPECT_NE(error_with("layout: {verifier_tp: []}\n").find("found a list"), std::string::npos);
  EXPECT_EQ(error_with("engine: {kv_block: 24}\n"),
            s + "20: engine.kv_block: expected a multiple of 16 from 16 to 1024, found '24'");
  EXPECT_EQ(
      error_with("engine: {kv_memory: 12 parsecs}\n"),
      s + "21: engine.kv_memory: expected auto, or a size (2GiB, 512MiB, 8G, 1.5e9) of at least "
          "1MiB, found '12 parsecs'");
  EXPECT_EQ(error_with("engine: {isa: avx512_bf61}\n"),
            s + "15: engine.isa: expected one of auto, amx_bf16, avx512_bf16, avx512, avx2, "
                "portable, found "
                "'avx512_bf61'; did you mean 'avx512_bf16'?");
  EXPECT_EQ(
      error_with("reward: {method: math}\n"),
      s + "18: reward.method: expected one of none, match, command, found 'math'; did you mean "
          "'match'?");
  EXPECT_EQ(error_with("limits: {wall_clock: 10:00}\n"),
            s + "22: limits.wall_clock: expected auto, or a duration (90, 30s, 15m, 2h, 1d, "
                "HH:MM:SS, D-HH:MM:SS) "
                "from 1 to 31622400 seconds, found '10:00'");
  EXPECT_EQ(error_with("limits: {stall: never}\n"),
            s + "17: limits.stall: expected none, or a duration (90, 30s, 15m, 2h, 1d, HH:MM:SS, "
                "D-HH:MM:SS) from 1 "
                "to 31622400 seconds, found 'never'");
  EXPECT_EQ(error_with("limits: {wall_clock: }\n").find(s + "10: limits.wall_clock: expected"), 0U);
  EXPECT_EQ(error_with("engine: {threads: {}}\n"),
            s + "19: engine.threads: expected auto, or a whole number from 1 to 1024, found a map");
  EXPECT_EQ(error_with("engine: 5\n"),
            s + "1: section 'engine': expected keys with values, found '5'");
}

TEST(RunConfig, RequiredKeys) {
  EXPECT_EQ(error_of(""),
            "run.yaml: model.path is required: the path of a directory\n"
            "run.yaml: prompts.path is required: the path of a file\n"
            "run.yaml: output.directory is required: the path of a directory");
  EXPECT_EQ(error_of("model:\nprompts: {path: p}\noutput: {directory: o}\n"),
            "run.yaml: model.path is required: the path of a directory");
  // Where responses are given, so are the prompts and the place of what comes out.
  const RunConfig given =
      parse_run_config("model: {path: m}\n", "run.yaml", "/here", {}, Purpose::given);
  EXPECT_EQ(given.model.path, "/here/m");
  EXPECT_EQ(error_of("model: {path: \"\"}\nprompts: {path: p}\noutput: {directory: o}\n"),
            "run.yaml:1:15: model.path: expected the path of a directory, found '' in quotes");
  EXPECT_EQ(error_of("- a\n").find("run.yaml:1:1: expected sections (model:, prompts:, ...), "
                                   "found a list"),
            0U);
}

TEST(RunConfig, AllProblemsAtOnce) {
  const std::string message =
      error_of("model: {path: m, typ: 1}\nsampling: {top_k: x}\nnope: {}\n", {"a=1"});
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 5) << message;
  std::string many = required + "sampling:\n";
  for (int i = 0; i < 100; ++i) many += "  unknown" + std::to_string(i) + ": 1\n";
  const std::string long_message = error_of(many);
  EXPECT_EQ(std::count(long_message.begin(), long_message.end(), '\n'), 20);
  EXPECT_NE(long_message.find("\n... and 80 more"), std::string::npos);
}

TEST(RunConfig, KeysThatMustFitTogether) {
  EXPECT_EQ(
      error_with("sampling:\n  max_tokens: 5\n  min_tokens: 6\n"),
      "run.yaml:6:15: sampling.min_tokens: expected at most sampling.max_tokens (5), found 6");
  EXPECT_EQ(error_set("limits.wall_clock=20"),
            "run.yaml: limits.margin: expected less than limits.wall_clock (20 seconds), found 30");
}

TEST(RunConfig, RanksThatDraftNeedSomethingToDraftWith) {
  EXPECT_EQ(error_set("layout.drafters=2"),
            "--set layout.drafters=2: layout.drafters: expected auto or 0 where "
            "speculation.drafters is empty, found 2");
  const RunConfig c =
      parse(required, {"layout.drafters=2", "speculation.drafters=[{method: suffix}]"});
  EXPECT_EQ(c.layout.drafters, 2);
}

TEST(RunConfig, DegreesOfAllGroupsOrOfEach) {
  EXPECT_EQ(
      *parse(required, {"layout.verifier_tp=4", "layout.expert_parallel=4"}).layout.expert_parallel,
      4);
  for (const char* layout : {"{expert_parallel: 2}", "{expert_parallel: 2, verifier_tp: [4, 2]}"}) {
    EXPECT_NE(error_with(std::string("layout: ") + layout + "\n")
                  .find("layout.expert_parallel: expected auto, or the degree that "
                        "layout.verifier_tp gives all groups, found 2"),
              std::string::npos);
  }
  const RunConfig all = parse(required, {"layout.verifier_tp=4"});
  EXPECT_EQ(all.layout.verifier_tp, std::vector<std::int32_t>{4});
  const RunConfig each = parse(required, {"layout.verifier_tp=[4, 2, 1]"});
  EXPECT_EQ(each.layout.verifier_tp, (std::vector<std::int32_t>{4, 2, 1}));
  EXPECT_NE(each.text.find("verifier_tp: [4, 2, 1]"), std::string::npos);
  EXPECT_NE(all.text.find("verifier_tp: 4"), std::string::npos);
}

TEST(RunConfig, PlainDecodingHasNoDraftersWhateverTheTextLists) {
  const RunConfig plain =
      parse(required, {"speculation.drafters=[{method: suffix}]", "speculation.mode=plain"});
  EXPECT_TRUE(plain.speculation.drafters.empty());
  EXPECT_NE(plain.text.find("drafters: [{method: suffix"), std::string::npos);
}

TEST(RunConfig, TheModeOfSpeculationAndRanksThatDraftMustAgree) {
  const auto with = [](const std::string& mode, const std::string& drafters) {
    return test::message_of<UsageError>([&] {
      static_cast<void>(
          parse(required, {"speculation.drafters=[{method: suffix}]", mode, drafters}));
    });
  };
  EXPECT_EQ(with("speculation.mode=coupled", "layout.drafters=2"),
            "--set layout.drafters=2: layout.drafters: expected auto or 0 where speculation.mode "
            "is coupled, found 2");
  EXPECT_EQ(with("speculation.mode=plain", "layout.drafters=1"),
            "--set layout.drafters=1: layout.drafters: expected auto or 0 where speculation.mode "
            "is plain, found 1");
  EXPECT_EQ(with("speculation.mode=decoupled", "layout.drafters=0"),
            "--set layout.drafters=0: layout.drafters: expected auto or at least 1 where "
            "speculation.mode is decoupled, found 0");
  EXPECT_EQ(error_set("speculation.mode=decoupled"),
            "--set speculation.mode=decoupled: speculation.mode: expected auto or plain where "
            "speculation.drafters is empty, found 'decoupled'");
  EXPECT_EQ(parse(required, {"speculation.mode=plain"}).speculation.mode, SpeculationMode::plain);
  EXPECT_EQ(parse(required, {}).speculation.mode, std::nullopt);
}

TEST(RunConfig, RulesOfAnswersMayGoByDataSource) {
  const RunConfig c = parse(required, {"reward.rule={openai/gsm8k: last_number, a b: boxed}"});
  const AnswerRules rules{std::nullopt,
                          {{"openai/gsm8k", AnswerRule::last_number}, {"a b", AnswerRule::boxed}}};
  EXPECT_EQ(c.reward.rule, rules);
  EXPECT_EQ(parse(c.text, {}).reward.rule, rules);
  const RunConfig others = parse(required, {"reward.rule={MATH: boxed, default: exact}"});
  EXPECT_EQ(others.reward.rule, (AnswerRules{AnswerRule::exact, {{"MATH", AnswerRule::boxed}}}));
  EXPECT_EQ(parse(others.text, {}).reward.rule, others.reward.rule);
  EXPECT_EQ(error_with("reward: {rule: {MATH: boxes}}\n"),
            "run.yaml:4:23: reward.rule.MATH: expected one of exact, numeric, last_number, boxed, "
            "regex, found 'boxes'; did you mean 'boxed'?");
  EXPECT_EQ(
      error_with("reward: {rule: {}}\n"),
      "run.yaml:4:16: reward.rule: expected one of exact, numeric, last_number, boxed, regex; "
      "or a map of such by data_source, and `default` for others, found a map");
  // A pattern is of those of its own.
  EXPECT_EQ(error_with("reward: {method: match, rule: {a: regex}}\n"),
            "run.yaml: reward.pattern: expected a regular expression where reward.rule is regex, "
            "found none");
}

TEST(RunConfig, WhatAMethodOfRewardNeedsIsThere) {
  EXPECT_EQ(error_with("reward: {method: match, rule: regex}\n"),
            "run.yaml: reward.pattern: expected a regular expression where reward.rule is regex, "
            "found none");
  EXPECT_EQ(error_with("reward: {method: match, pattern: a}\n"),
            "run.yaml:4:34: reward.pattern: expected none where reward.rule is not regex, found "
            "'a'");
  EXPECT_EQ(error_with("reward: {method: command}\n"),
            "run.yaml: reward.command: expected a program where reward.method is command, found an "
            "empty list");
  EXPECT_EQ(error_with("reward: {command: [\"\"]}\n"),
            "run.yaml:4:20: reward.command: expected a list of texts: a program and its arguments, "
            "found '' in quotes");
}

TEST(RunConfig, WhatAnEnvironmentNeedsIsThere) {
  EXPECT_EQ(error_with("environment: {method: command}\n"),
            "run.yaml: environment.command: expected a program where environment.method is "
            "command, found an empty list");
  EXPECT_EQ(error_with("environment: {method: command, command: [x], timeout: 5m}\n"),
            "run.yaml:4:55: environment.timeout: expected less than limits.stall (600 seconds) "
            "with all of environment.attempts, found 300");
}

TEST(RunConfig, Overrides) {
  const RunConfig config = parse(required, {"model.path=x", "sampling.seed=5", "sampling.seed=6",
                                            "sampling.stop_ids=[3]", "engine.threads=2"});
  EXPECT_EQ(config.model.path, (std::filesystem::current_path() / "x").string());
  EXPECT_EQ(config.sampling.seed, 6U);
  EXPECT_EQ(config.sampling.stop_ids, std::vector<TokenId>{3});
  EXPECT_EQ(config.engine.threads, 2);
  // An override may give what the file leaves out.
  EXPECT_NO_THROW(
      (void)parse("", {"model.path=m", "prompts.path=p", "output.directory=o=with=equals"}));

  EXPECT_EQ(error_set("sampling.temprature=1"),
            "--set sampling.temprature=1: unknown key 'temprature' in section 'sampling'; did you "
            "mean 'temperature'?");
  EXPECT_EQ(error_set("smapling.seed=1"),
            "--set smapling.seed=1: unknown section 'smapling'; did you mean 'sampling'?");
  EXPECT_EQ(error_set("seed=1"),
            "--set seed=1: expected SECTION.KEY=VALUE; did you mean 'sampling.seed=...'?");
  EXPECT_EQ(error_set("sampling.seed"), "--set sampling.seed: expected SECTION.KEY=VALUE");
  EXPECT_EQ(error_set("sampling.seed="),
            "--set sampling.seed=: sampling.seed: expected a whole number, at least 0, found "
            "nothing");
  EXPECT_EQ(error_set("model.path='a"),
            "--set model.path='a: not valid YAML: a quote is not closed");
  EXPECT_EQ(error_set("sampling={seed: 1}"),
            "--set sampling={seed: 1}: expected SECTION.KEY=VALUE");
  EXPECT_EQ(error_set("sampling.seed=\xEF\xBB\xBF"
                      "3"),
            "--set sampling.seed=\xEF\xBB\xBF"
            "3: a byte order mark");
}

TEST(RunConfig, GroupsOfKeys) {
  const auto chat = [](const std::string& text, const std::vector<std::string>& overrides = {}) {
    return parse(text, overrides).prompts.chat;
  };
  const std::string file =
      "model: {path: m}\nprompts: {path: p, chat: {enable_thinking: false, date: 1 Jan 2025}}\n"
      "output: {directory: o}\n";
  EXPECT_EQ(chat(required).enable_thinking, std::nullopt);
  EXPECT_EQ(chat(required).date, std::nullopt);
  EXPECT_EQ(chat(required).continue_final_message, std::nullopt);
  EXPECT_EQ(chat(file, {"prompts.chat.continue_final_message=true"}).continue_final_message, true);
  EXPECT_EQ(parse(required, {"prompts.add_special_tokens=false"}).prompts.add_special_tokens,
            false);
  EXPECT_EQ(chat(file).enable_thinking, false);
  EXPECT_EQ(chat(file).date, "1 Jan 2025");
  EXPECT_EQ(chat(file, {"prompts.chat.enable_thinking=true"}).enable_thinking, true);
  EXPECT_EQ(chat(file, {"prompts.chat.enable_thinking=true"}).date, "1 Jan 2025");
  EXPECT_EQ(chat(file, {"prompts.chat={date: auto}"}).date, std::nullopt);
  EXPECT_EQ(chat(file, {"prompts.chat={date: auto}"}).enable_thinking, false);

  const RunConfig again = parse_run_config(parse(file).text, "again.yaml", "/elsewhere", {});
  EXPECT_EQ(again.text, parse(file).text);
  EXPECT_EQ(again.prompts.chat.date, "1 Jan 2025");
  EXPECT_NE(again.text.find("  chat:\n    enable_thinking: false\n    date: \"1 Jan 2025\"\n"),
            std::string::npos);

  const auto in_chat = [](const std::string& value) {
    return error_of("model: {path: m}\noutput: {directory: o}\nprompts: {path: p, chat: " + value +
                    "}\n");
  };
  EXPECT_EQ(in_chat("{thinking: false}"),
            "run.yaml:3:27: unknown key 'chat.thinking' in section 'prompts'; there are path, "
            "keys.prompt, keys.messages, keys.prompt_tokens, keys.uid, keys.ground_truth, "
            "samples, overlong, max_prompt_tokens, shuffle, enough, filter, partial, begun, "
            "chat.enable_thinking, "
            "chat.date, chat.continue_final_message, add_special_tokens");
  EXPECT_EQ(in_chat("{enable_thinking: 0}"),
            "run.yaml:3:44: prompts.chat.enable_thinking: expected auto, or true or false, found "
            "'0'");
  EXPECT_EQ(in_chat("5"), "run.yaml:3:20: prompts.chat: expected keys with values, found '5'");
  EXPECT_EQ(error_set("prompts.chat=5"),
            "--set prompts.chat=5: prompts.chat: expected keys with values, found '5'");
  EXPECT_EQ(error_set("prompts.enable_thinking=false"),
            "--set prompts.enable_thinking=false: unknown key 'enable_thinking' in section "
            "'prompts'; did you mean 'chat.enable_thinking'?");
  EXPECT_EQ(error_set("enable_thinking=false"),
            "--set enable_thinking=false: expected SECTION.KEY=VALUE; did you mean "
            "'prompts.chat.enable_thinking=...'?");
}

TEST(RunConfig, KeysOfPromptsNameAFieldEach) {
  const auto with = [](const std::string& keys) {
    return "model: {path: m}\noutput: {directory: o}\nprompts: {path: p, keys: " + keys + "}\n";
  };
  EXPECT_TRUE(parse(required).prompts.keys.named().empty());
  const RunConfig config = parse(with("{prompt: question, ground_truth: answer}"));
  EXPECT_EQ(config.prompts.keys.prompt, "question");
  EXPECT_EQ(config.prompts.keys.ground_truth, "answer");
  EXPECT_EQ(config.prompts.keys.uid, std::nullopt);
  EXPECT_EQ(parse(required, {"prompts.keys.uid=id"}).prompts.keys.uid, "id");
  const RunConfig again = parse_run_config(config.text, "again.yaml", "/elsewhere", {});
  EXPECT_EQ(again.text, config.text);
  EXPECT_EQ(again.prompts.keys.prompt, "question");

  EXPECT_EQ(error_of(with("{prompts: question}")),
            "run.yaml:3:27: unknown key 'keys.prompts' in section 'prompts'; did you mean "
            "'keys.prompt'?");
  EXPECT_EQ(error_of(with("{prompt: [question]}")),
            "run.yaml:3:35: prompts.keys.prompt: expected auto, or non-empty text, found a list");
  EXPECT_EQ(error_of(with("{prompt: text, ground_truth: text}")),
            "run.yaml:3:55: prompts.keys.ground_truth: expected another field than "
            "prompts.keys.prompt, found 'text'");
}

TEST(RunConfig, ErrorsShowALineOfAnOverride) {
  EXPECT_EQ(
      error_set("sampling.seed=1\n2\n3"),
      "--set sampling.seed=1\\x0a2\\x0a3: sampling.seed: expected a whole number, at least 0, "
      "found '1\\x0a2\\x0a3'");
  for (const std::string& text :
       {std::string(9000, 'x'), "sampling.seed=" + std::string(9000, '\n') + "x",
        "sampling." + std::string(9000, 'x') + "=1", "sampling.seed='" + std::string(9000, 'x')}) {
    const std::string message = error_set(text);
    EXPECT_LT(message.size(), 700U) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(RunConfig, AnOverridesValueIsKeptAsItIsOrRefused) {
  const auto path_of = [](const std::string& value) {
    return parse(required, {"output.directory=" + value}).output.directory;
  };
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(path_of("x #y"), here + "/x #y");
  EXPECT_EQ(path_of("#y"), here + "/#y");
  EXPECT_EQ(path_of("a\nb"), here + "/a\nb");
  EXPECT_EQ(path_of("a\n"), here + "/a\n");
  EXPECT_EQ(path_of("é\n\tb"), here + "/é\n\tb");
  EXPECT_EQ(path_of(" x "), here + "/x");  // blanks around a value are none of it, in a file too
  EXPECT_EQ(path_of("\"a\\nb\""), here + "/a\nb");
  EXPECT_EQ(path_of("|\n  a\n  b"), here + "/a\nb\n");
  const std::string feed = "a line feed in a value; write it as \\n, in double quotes";
  for (const std::string value : {"'a\nb'", "\"a\n b\"", "\"\\\"\nb\""})
    EXPECT_EQ(error_set("output.directory=" + value).find(feed) == std::string::npos, false)
        << value;
  for (const std::string value :
       {"[{method: model, path: a\nb}]", "[{method: model, path: é\n  b}]",
        "[{method: model, path: 'a\nb'}]"})
    EXPECT_NE(error_set("speculation.drafters=" + value).find(feed), std::string::npos) << value;
  const RunConfig lines =
      parse(required, {"speculation.drafters=[{method: suffix},\n  {method: model,\n path: é}]\n"});
  EXPECT_EQ(lines.speculation.drafters.size(), 2U);
  EXPECT_EQ(
      error_set("sampling.seed=1 # one"),
      "--set sampling.seed=1 # one: sampling.seed: expected a whole number, at least 0, found "
      "'1 # one'");
}

TEST(RunConfig, PathsMayNameTheHomeDirectoryAndVariables) {
  ::setenv("HOME", "/home/me", 1);
  ::setenv("PACELINE_TEST_A", "/scratch/a", 1);
  ::unsetenv("PACELINE_TEST_B");
  const auto path_of = [](const std::string& value) {
    const RunConfig config = parse(
        "model: {path: m}\nprompts: {path: \"" + value + "\"}\noutput: {directory: out}\n", {});
    EXPECT_EQ(parse_run_config(config.text, "again.yaml", "/elsewhere", {}).prompts.path,
              config.prompts.path);
    return config.prompts.path;
  };
  EXPECT_EQ(path_of("~/p.jsonl"), "/home/me/p.jsonl");
  EXPECT_EQ(path_of("$PACELINE_TEST_A/p"), "/scratch/a/p");
  EXPECT_EQ(path_of("/x/${PACELINE_TEST_A}b"), "/x/scratch/ab");
  EXPECT_EQ(path_of("$$PACELINE_TEST_A"), "/base/$PACELINE_TEST_A");
  EXPECT_EQ(path_of("a$/$1/${/~/b~"), "/base/a$/$1/${/~/b~");
  EXPECT_EQ(path_of("~me/p"), "/base/~me/p");
  EXPECT_EQ(
      error_set("model.path=$PACELINE_TEST_B/m"),
      "--set model.path=$PACELINE_TEST_B/m: model.path: expected the path of a directory, found "
      "'$PACELINE_TEST_B/m'; the environment has no PACELINE_TEST_B ($$ is a dollar sign)");
  const RunConfig config =
      parse(required, {"speculation.drafters=[{method: model, path: ~/draft}]",
                       "reward.command=[$PACELINE_TEST_A/run, ~/r.py, $$x, a$PACELINE_TEST_A]"});
  EXPECT_EQ(config.speculation.drafters.at(0).path, "/home/me/draft");
  EXPECT_EQ(config.reward.command, (std::vector<std::string>{"/scratch/a/run", "/home/me/r.py",
                                                             "$x", "a$PACELINE_TEST_A"}));
  EXPECT_EQ(parse_run_config(config.text, "again.yaml", "/elsewhere", {}).text, config.text);
}

TEST(RunConfig, PathsAreAbsoluteAndKeepTheirParents) {
  const RunConfig config = parse_run_config(required, "run.yaml", "/base/./sub",
                                            std::vector<std::string>{"prompts.path=/a/../b"});
  EXPECT_EQ(config.model.path, "/base/sub/m");
  EXPECT_EQ(config.prompts.path, "/a/../b");
}

TEST(RunConfig, ReadsFiles) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("paceline-run-config-" + std::to_string(getpid()));
  std::filesystem::create_directories(directory);
  const std::string path = directory / "run.yaml";
  std::ofstream(path) << required;
  EXPECT_EQ(read_run_config(path, {}).model.path, directory / "m");
  std::ofstream(path) << "";
  EXPECT_EQ(test::message_of<UsageError>([&] {
              (void)read_run_config(path, {});
            }).find(path + ": model.path is required"),
            0U);
  EXPECT_EQ(test::message_of<UsageError>([&] { (void)read_run_config(path + "x", {}); }),
            path + "x: cannot read the configuration: No such file or directory");
  EXPECT_EQ(test::message_of<IoError>([&] { (void)read_run_config(directory, {}); }),
            directory.string() + ": cannot read the configuration: Is a directory");
  std::filesystem::remove_all(directory);
}

TEST(RunConfig, ReferenceShowsEveryKeyAndIsYaml) {
  const std::string reference = config_reference();
  for (const Key& key : key_table()) {
    EXPECT_NE(reference.find("  " + line_start(key)), std::string::npos) << key.name;
    EXPECT_NE(reference.find(key.help), std::string::npos) << key.name;
    EXPECT_FALSE(key.help.empty());
    for (const std::string& line : key.details) {
      EXPECT_NE(reference.find("  #   " + line + "\n"), std::string::npos) << line;
    }
  }
  EXPECT_NO_THROW((void)parse(reference));
}

TEST(RunConfig, HistoryNeedsSuffixTreesAndServers) {
  const auto with = [](const std::string& rest) {
    return required + "speculation: {drafters: [{method: suffix}], " + rest + "}\n";
  };
  EXPECT_EQ(parse(required).speculation.history, std::nullopt);
  EXPECT_EQ(parse(with("history: none")).speculation.history, std::nullopt);
  EXPECT_EQ(parse(with("history: auto")).speculation.history, SpeculationSection::kBeside);
  EXPECT_EQ(parse(with("history: runs")).speculation.history, "/base/runs");
  EXPECT_EQ(parse(with("history: ./auto")).speculation.history, "/base/auto");
  for (const char* history : {"auto", "runs"}) {
    const RunConfig config = parse(with("history: " + std::string(history)));
    EXPECT_EQ(parse(config.text).speculation.history, config.speculation.history);
  }
  EXPECT_EQ(parse(with("history: runs, mode: plain")).speculation.history, std::nullopt)
      << "plain decoding drafts from nothing";
  EXPECT_EQ(parse_run_config(with("history: runs"), "c", "/base", {}, Purpose::simulation)
                .speculation.history,
            std::nullopt)
      << "nor do simulated requests say anything";
  EXPECT_EQ(error_with("speculation: {drafters: [{method: ngram}], history: auto}\n"),
            "run.yaml:4:53: speculation.history: expected none where there is no suffix drafter, "
            "found auto");
  EXPECT_EQ(error_of(required, {"speculation.history=r",
                                "speculation.drafters=[{method: suffix, servers: 0}]"}),
            "--set speculation.history=r: speculation.history: expected none where the suffix "
            "drafter has no servers to read it, found " +
                (std::filesystem::current_path() / "r").string());
}

TEST(RunConfig, PregeneratingNeedsTheHistoryThatReadsIt) {
  const auto with = [](const std::string& rest) {
    return "speculation: {drafters: [{method: suffix}], " + rest + "}\n";
  };
  EXPECT_FALSE(parse(required).speculation.pregenerate);
  EXPECT_TRUE(parse(required + with("history: auto, pregenerate: true")).speculation.pregenerate);
  EXPECT_EQ(error_with(with("pregenerate: true")),
            "run.yaml:4:58: speculation.pregenerate: expected speculation.history: auto, by which "
            "the next step drafts from it, found none");
  EXPECT_EQ(error_with(with("history: /r, pregenerate: true")),
            "run.yaml:4:71: speculation.pregenerate: expected speculation.history: auto, by which "
            "the next step drafts from it, found /r");
}

}  // namespace
}  // namespace paceline::io
