#include "runtime/engine/packed_prefill.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "runtime/engine/batcher.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/requests.hpp"

namespace paceline::engine {
namespace {

constexpr int kPrompts = 6;
constexpr int kSamples = 5;

/// Prompts, and responses that a Batcher generated: their log-probabilities are hashes of all that
/// precedes a token.
struct Generated {
  std::vector<Admission> requests;
  Responses responses;

  [[nodiscard]] std::vector<GivenResponse> given() const {
    std::vector<GivenResponse> all;
    for (const Admission& r : requests)
      all.push_back({r.trajectory.id, r.prompt, responses.at(r.trajectory.id).tokens});
    return all;
  }
};

Generated generate() {
  SamplingParams sampling;
  sampling.max_tokens = 60;
  Batcher batcher({.max_batch = 30, .prefill_chunk = 256, .kv_blocks = 400, .context = 2000},
                  sampling, {kStop}, nullptr);
  BlockCheckingRunner runner(400, 16, kVocab);
  Generated run;
  for (Admission& r : requests(kPrompts, kSamples)) {
    run.requests.push_back(r);
    EXPECT_TRUE(batcher.admit(r));
  }
  while (batcher.active() > 0) {
    for (Trajectory& t : batcher.commit(runner.run(batcher.plan()))) {
      const RequestId id = t.id;
      run.responses.emplace(id, std::move(t));
    }
  }
  return run;
}

/// Scores all, and compares; returns the rows that it took.
std::size_t expect_the_same(const Generated& run, const PackedPrefillLimits& limits) {
  PackedPrefill prefill(limits, 0, run.given());
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  std::size_t scored = 0;
  while (true) {
    const Step& step = prefill.plan();
    if (step.empty()) break;
    EXPECT_LE(step.tokens.size(), static_cast<std::size_t>(limits.rows));
    EXPECT_LE(step.parts.size(), static_cast<std::size_t>(limits.max_batch));
    for (const ResponseScores& scores : prefill.commit(runner.run(step))) {
      EXPECT_EQ(scores.logprob, run.responses.at(scores.id).logprob);
      EXPECT_EQ(scores.sampling_logprob.size(), scores.logprob.size());
      ++scored;
    }
  }
  EXPECT_EQ(scored, run.responses.size());
  return runner.rows;
}

TEST(PackedPrefill, EveryTokenIsScoredBehindAllThatPrecedesIt) {
  const Generated run = generate();
  for (const int batch : {1, 7, 64}) {
    for (const int rows : {1, 13, 256}) {
      for (const int block : {16, 32}) {
        expect_the_same(run,
                        {.max_batch = batch, .rows = rows, .kv_block = block, .kv_blocks = 400});
        // Room for one at its longest alone: 100 + 60 positions.
        expect_the_same(run, {.max_batch = batch,
                              .rows = rows,
                              .kv_block = block,
                              .kv_blocks = kv::Sequences::blocks_needed(159, block)});
      }
    }
  }
}

TEST(PackedPrefill, NotesAreOfAllThatPrecedesAToken) {
  const Generated run = generate();
  for (const int rows : {1, 13, 256}) {
    PackedPrefill prefill({.max_batch = 7,
                           .rows = rows,
                           .kv_blocks = 400,
                           .logprobs = BlockCheckingRunner::kTop,
                           .draw = TokenDraw{.repetition_penalty = 2}},
                          0, run.given());
    BlockCheckingRunner runner(400, 16, kVocab);
    std::size_t samples = 0;
    for (const Step* step = &prefill.plan(); !step->empty(); step = &prefill.plan()) {
      samples += step->samples.size();
      for (const ResponseScores& scores : prefill.commit(runner.run(*step))) {
        const std::vector<TokenId>& tokens = run.responses.at(scores.id).tokens;
        ASSERT_EQ(scores.top_ids.size(), 2 * tokens.size());
        for (std::size_t t = 0; t < tokens.size(); ++t) {
          ASSERT_EQ(scores.top_ids[2 * t], tokens[t]);
          ASSERT_EQ(scores.top_logprob[2 * t + 1], scores.logprob[t]);
        }
      }
    }
    EXPECT_EQ(runner.noted, samples);
  }
}

TEST(PackedPrefill, SiblingsShareTheirPrompt) {
  const Generated run = generate();
  std::size_t expected = 0;
  for (const GivenResponse& given : run.given()) {
    if (given.id.sample == 0) expected += given.prompt.size() - 1;
    expected += given.response.size();
  }
  EXPECT_EQ(expect_the_same(run, {.max_batch = 64, .rows = 100, .kv_blocks = 400}), expected);
}

TEST(PackedPrefill, StepsAreFullWhileThereIsWork) {
  const Generated run = generate();
  PackedPrefill prefill({.max_batch = 64, .rows = 40, .kv_blocks = 400}, 0, run.given());
  BlockCheckingRunner runner(400, 16, kVocab);
  std::size_t partial = 0;
  for (const Step* step = &prefill.plan(); !step->empty(); step = &prefill.plan()) {
    partial += step->tokens.size() < 40 ? 1 : 0;
    (void)prefill.commit(runner.run(*step));
  }
  EXPECT_LE(partial, 2U);  // the last, and one while siblings wait for the last prompt
}

TEST(PackedPrefill, StopIdsAreBannedAsWhenTheyWereSampled) {
  const std::vector<TokenId> prompt = {1, 2, 3};
  const std::vector<TokenId> response = {4, 5, 6, 8, 9};
  PackedPrefill prefill({.max_batch = 1, .rows = 100, .kv_blocks = 10}, 2,
                        {{{3, 1}, prompt, response}});
  const Step& step = prefill.plan();
  EXPECT_EQ(step.tokens, (std::vector<TokenId>{1, 2, 3, 4, 5, 6, 8}));
  ASSERT_EQ(step.samples.size(), 5U);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(step.samples[i].row, 2 + i);
    EXPECT_EQ(step.samples[i].index, i);
    EXPECT_EQ(step.samples[i].given, response[i]);
    EXPECT_EQ(step.samples[i].ban, i < 2 ? StepSample::run_stops : StepSample::none);
  }
  const std::vector<TokenId> own = {8, 9};
  PackedPrefill other({.max_batch = 1, .rows = 100, .kv_blocks = 10}, 1,
                      {{{3, 1}, prompt, response, &own}});
  const StepSample& first = other.plan().samples.at(0);
  EXPECT_EQ(first.ban, StepSample::own_stops);
  EXPECT_EQ(first.banned, 2);
  EXPECT_EQ(first.draw, -1);
  PackedPrefill drawn({.max_batch = 1, .rows = 100, .kv_blocks = 10}, 0,
                      {{{3, 1}, prompt, response, nullptr, TokenDraw{.temperature = 0.5F}}});
  const Step& own_draw = drawn.plan();
  EXPECT_EQ(own_draw.draws.at(own_draw.samples.at(4).draw).temperature, 0.5F);
}

TEST(PackedPrefill, WhatCannotBeScoredIsRefused) {
  const std::vector<TokenId> prompt(40, 1);
  const std::vector<TokenId> response(9, 2);
  const PackedPrefillLimits limits{.max_batch = 1, .rows = 8, .kv_blocks = 4};
  EXPECT_NO_THROW(PackedPrefill(limits, 0, {{{0, 0}, prompt, response}}));  // 48 positions
  const std::vector<TokenId> longer(10, 2);
  EXPECT_THROW(PackedPrefill(limits, 0, {{{0, 0}, prompt, longer}}), std::logic_error);
  EXPECT_THROW(PackedPrefill(limits, 0, {{{0, 0}, prompt, {}}}), std::logic_error);
  EXPECT_THROW(PackedPrefill(limits, 0, {{{0, 0}, {}, response}}), std::logic_error);
}

}  // namespace
}  // namespace paceline::engine
