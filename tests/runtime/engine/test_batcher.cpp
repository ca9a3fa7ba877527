#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <set>

#include "runtime/core/environment.hpp"
#include "runtime/engine/batcher.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/requests.hpp"

namespace paceline::engine {
namespace {

SamplingParams sampling_params() {
  SamplingParams params;
  params.max_tokens = 60;
  params.keep_masks = true;
  params.keep_routing = true;
  params.logprobs = BlockCheckingRunner::kTop;
  return params;
}

struct World {
  BatcherLimits limits;
  SamplingParams sampling = sampling_params();
  int stop_after = -1;  ///< steps until everything is stopped and moved to a fresh batcher
};

// Runs 6 prompts x 5 samples to the end; stopping moves the partial responses to a new pool.
Responses generate(const World& world, std::size_t* rows = nullptr) {
  std::deque<Admission> queue = requests(6, 5);
  Responses results;
  int steps = 0;
  while (!queue.empty()) {
    Batcher batcher(world.limits, world.sampling, {kStop}, nullptr);
    BlockCheckingRunner runner(world.limits.kv_blocks * world.limits.owners, world.limits.kv_block,
                               kVocab);
    runner.owners = world.limits.owners;
    std::deque<Admission> next;
    while (!queue.empty() || batcher.active() > 0) {
      while (!queue.empty() && batcher.admit(queue.front())) queue.pop_front();
      EXPECT_GT(batcher.active(), 0) << "nothing runs and nothing fits";
      if (batcher.active() == 0) return results;
      for (Trajectory& t : commit(batcher, runner)) {
        const RequestId id = t.id;
        EXPECT_TRUE(results.emplace(id, std::move(t)).second) << "finished twice";
      }
      for (Admission& parked : batcher.take_parked()) queue.push_front(std::move(parked));
      if (++steps == world.stop_after) {
        for (Trajectory& t : batcher.stop()) {
          Admission again = request(t.id.prompt, t.id.sample);
          again.trajectory = std::move(t);
          next.push_back(std::move(again));
        }
        EXPECT_EQ(batcher.active(), 0);
        next.insert(next.end(), std::make_move_iterator(queue.begin()),
                    std::make_move_iterator(queue.end()));
        queue.clear();
      }
    }
    if (rows != nullptr) *rows += runner.rows;
    queue = std::move(next);
  }
  return results;
}

BatcherLimits plain() {
  return {.max_batch = 1, .prefill_chunk = 1000, .kv_block = 16, .kv_blocks = 64, .context = 2000};
}

TEST(Batcher, NothingOfItsScheduleShowsInTheResponses) {
  const Responses reference = generate({plain()});
  EXPECT_EQ(reference.size(), 30U);
  std::size_t stopped_by_id = 0;
  for (const auto& [id, t] : reference)
    stopped_by_id += t.finish_reason == FinishReason::stop_id ? 1 : 0;
  EXPECT_GT(stopped_by_id, 5U);
  EXPECT_LT(stopped_by_id, 30U);  // some end by length: both ends are exercised
  for (const int batch : {1, 7, 64}) {
    for (const int chunk : {1, 13, 256}) {
      for (const int block : {16, 32}) {
        BatcherLimits limits = plain();
        limits.max_batch = batch;
        limits.prefill_chunk = chunk;
        limits.kv_block = block;
        limits.kv_blocks = 400;
        expect_same(reference, generate({limits}));
        limits.kv_blocks = 40;  // only a few fit: prefixes are evicted, admission waits
        expect_same(reference, generate({limits}));
      }
    }
  }
}

TEST(Batcher, StoppingAndGoingOnChangesNothing) {
  const Responses reference = generate({plain()});
  for (const int stop : {1, 5, 40}) {
    BatcherLimits limits = plain();
    limits.max_batch = 8;
    limits.kv_blocks = 200;
    limits.prefill_chunk = 20;
    expect_same(reference, generate({.limits = limits, .stop_after = stop}));
  }
}

TEST(Batcher, OwnersChangeNothing) {
  const Responses reference = generate({plain()});
  for (const int owners : {2, 3, 4}) {
    for (const int batch : {1, 7, 64}) {
      for (const int chunk : {1, 13, 256}) {
        for (const int growth : {0, 5}) {
          BatcherLimits limits = plain();
          limits.owners = owners;
          limits.max_batch = batch;
          limits.prefill_chunk = chunk;
          limits.growth = growth;
          limits.kv_blocks = 200;
          expect_same(reference, generate({limits}));
          limits.kv_blocks = 14;  // hardly more than the longest request
          expect_same(reference, generate({.limits = limits, .stop_after = 25}));
        }
      }
    }
  }
}

TEST(Batcher, RequestsAreDealtEvenlyAndSiblingsStayTogether) {
  BatcherLimits limits = plain();
  limits.owners = 4;
  limits.max_batch = 32;
  limits.kv_blocks = 400;
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  std::map<std::int32_t, std::set<std::uint32_t>> prompts;
  std::map<std::int32_t, int> of_owner;
  for (std::uint32_t prompt = 0; prompt < 4; ++prompt) {
    for (std::uint32_t sample = 0; sample < 8; ++sample) {
      Admission r = request(prompt, sample);
      ASSERT_TRUE(batcher.admit(r));
      const OptionalIndex owner = batcher.owner(RequestId{prompt, sample});
      ASSERT_TRUE(owner);
      prompts[*owner].insert(prompt);
      ++of_owner[*owner];
    }
  }
  for (std::int32_t owner = 0; owner < 4; ++owner) {
    EXPECT_EQ(prompts[owner].size(), 1U);
    EXPECT_EQ(of_owner[owner], 8);
  }
}

TEST(Batcher, ARequestGoesWhereItsKvIsIfThereIsRoom) {
  BatcherLimits limits = plain();
  limits.owners = 2;
  limits.max_batch = 8;
  limits.kv_blocks = 12;
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  for (const std::uint32_t prompt : {5, 11}) {  // of 11 blocks each
    Admission r = request(prompt, 0);
    ASSERT_TRUE(batcher.admit(r, 1));
  }
  EXPECT_EQ(*batcher.owner(RequestId{5, 0}), 1);
  EXPECT_EQ(*batcher.owner(RequestId{11, 0}), 0) << "the pool of the wanted owner is full";
  Admission third = request(17, 0);
  EXPECT_FALSE(batcher.admit(third));
}

TEST(Batcher, SiblingsComputeTheirPromptOnce) {
  BatcherLimits limits = plain();
  limits.kv_blocks = 400;
  limits.max_batch = 64;
  std::size_t rows = 0;
  const Responses results = generate({limits}, &rows);
  std::size_t expected = 0;
  for (const auto& [id, t] : results) {
    expected += t.tokens.size() - 1;  // one row each but the first token's
    expected += id.sample == 0 ? request(id.prompt, 0).prompt.size()
                               : 1;  // the prompt, or its last position
  }
  EXPECT_EQ(rows, expected);
}

TEST(Batcher, MinTokensBansAndContextEnds) {
  World world{plain()};
  world.limits.context = 110;
  world.sampling.min_tokens = 9;
  for (const auto& [id, t] : generate(world)) {
    const std::size_t prompt = request(id.prompt, 0).prompt.size();
    EXPECT_LE(prompt + t.tokens.size(), 110U);
    if (prompt == 100 && t.tokens.size() == 10 && t.tokens.back() != kStop) {
      EXPECT_EQ(t.finish_reason, FinishReason::context);
    }
  }
  // The runner knows no bans; the plan must carry them for the first nine tokens.
  Batcher batcher(world.limits, world.sampling, {kStop}, nullptr);
  Admission r = request(0, 0);
  ASSERT_TRUE(batcher.admit(r));
  EXPECT_EQ(batcher.plan().samples.at(0).ban, StepSample::run_stops);
}

/// Conversations to the end: each turn is answered by tokens of its own, up to four times.
Responses converse(std::int32_t max_batch, std::int32_t growth, std::int32_t blocks) {
  BatcherLimits limits = plain();
  limits.max_batch = max_batch;
  limits.growth = growth;
  limits.kv_blocks = blocks;
  limits.turn_tokens = 12;
  limits.prefill_chunk = 5;
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  std::deque<Admission> queue = requests(6, 3);
  Responses results;
  while (!queue.empty() || batcher.active() > 0) {
    while (!queue.empty() && batcher.admit(queue.front())) queue.pop_front();
    EXPECT_TRUE(commit(batcher, runner).empty()) << "a response ends by its answer alone";
    for (Admission& parked : batcher.take_parked()) queue.push_front(std::move(parked));
    const std::vector<RequestId> over = batcher.take_turns();
    if (!over.empty()) (void)runner.run(batcher.kv_work());
    for (const RequestId id : over) {
      Departure left = batcher.leave(id);
      batcher.release(left.parcel);
      EnvironmentReply reply;
      const std::size_t turn = left.request.trajectory.turns.size();
      reply.tokens.assign(3 + 7 * turn, static_cast<TokenId>(20 + turn));
      reply.by = GivenBy::tokens;
      Trajectory& t = left.request.trajectory;
      if (take_reply(t, reply, left.request.prompt.size(),
                     {.max_turns = 4,
                      .max_tokens = 60,
                      .context = 2000,
                      .keep_masks = true,
                      .logprobs = BlockCheckingRunner::kTop})) {
        queue.push_back(std::move(left.request));
      } else {
        results.emplace(id, std::move(t));
      }
    }
  }
  EXPECT_EQ(batcher.blocks_free(), limits.kv_blocks);
  return results;
}

TEST(Batcher, TurnsLeaveTheBatchAndComeBackWithWhatTheyWereGiven) {
  const Responses reference = converse(1, 0, 64);
  ASSERT_EQ(reference.size(), 18U);
  std::map<FinishReason, int> reasons;
  for (const auto& [id, t] : reference) {
    ++reasons[t.finish_reason];
    EXPECT_LE(t.tokens.size(), 60U);
    std::uint32_t begin = 0;
    for (const AnsweredTurn& turn : t.turns) {
      EXPECT_LE(turn.given - begin, 12U);
      EXPECT_TRUE(turn.reason == FinishReason::stop_id
                      ? t.tokens[turn.given - 1] == kStop
                      : turn.given - begin == 12 || turn.given == 60);
      for (std::uint32_t i = turn.given; i < turn.end; ++i) EXPECT_EQ(t.logprob[i], 0);
      begin = turn.end;
    }
  }
  EXPECT_GT(reasons[FinishReason::turns], 0);
  EXPECT_GT(reasons[FinishReason::length], 0);
  for (const std::int32_t batch : {3, 64}) {
    expect_same(reference, converse(batch, 0, 64));
    expect_same(reference, converse(batch, 16, 24));
  }
}

/// Requests of which some have a longest response, stops and a temperature of their own.
Admission own_request(std::uint32_t prompt, std::uint32_t sample) {
  Admission r = request(prompt, sample);
  if (prompt == 1) r.sampling.max_tokens = 9;
  if (prompt == 2) r.sampling = {.max_tokens = 150, .stops = StopSet{{11, 12}, {}}};
  if (prompt == 3) r.sampling.stops = StopSet{};
  if (prompt == 4) r.sampling.draw = TokenDraw{.temperature = 0.5F + 0.1F * sample};
  if (prompt == 5) r.sampling.draw = TokenDraw{.repetition_penalty = 1.5F};
  return r;
}

/// To the end, in batches of so many; a request leaves and comes back every few steps.
Responses generate_own(std::int32_t max_batch, std::int32_t growth, int leave_every) {
  BatcherLimits limits = plain();
  limits.max_batch = max_batch;
  limits.growth = growth;
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  std::deque<Admission> queue;
  for (std::uint32_t p = 0; p < 6; ++p) {
    for (std::uint32_t s = 0; s < 4; ++s) queue.push_back(own_request(p, s));
  }
  Responses results;
  for (int steps = 1; !queue.empty() || batcher.active() > 0; ++steps) {
    while (!queue.empty() && batcher.admit(queue.front())) queue.pop_front();
    if (batcher.active() == 0) {
      ADD_FAILURE() << "nothing runs and nothing fits";
      break;
    }
    for (Trajectory& t : commit(batcher, runner)) {
      const RequestId id = t.id;
      results.emplace(id, std::move(t));
    }
    for (Admission& parked : batcher.take_parked()) queue.push_back(std::move(parked));
    if (leave_every == 0 || steps % leave_every != 0 || batcher.active() == 0) continue;
    runner.run(batcher.kv_work());
    Departure departure = batcher.leave(batcher.running().front().id);
    batcher.release(departure.parcel);
    queue.push_back(std::move(departure.request));
  }
  return results;
}

TEST(Batcher, RequestsHaveTheirOwnLengthsAndStops) {
  const Responses alone = generate_own(1, 0, 0);
  ASSERT_EQ(alone.size(), 24U);
  std::size_t by_own_stop = 0;
  std::size_t past_run = 0;
  for (const auto& [id, t] : alone) {
    const std::optional<std::int32_t> own = own_request(id.prompt, 0).sampling.max_tokens;
    EXPECT_LE(std::ssize(t.tokens), own.value_or(60));
    if (t.finish_reason == FinishReason::length) {
      EXPECT_EQ(std::ssize(t.tokens), own.value_or(60));
    }
    past_run += t.tokens.size() > 60 ? 1 : 0;
    const auto has = [&t = t](TokenId token) {
      return std::find(t.tokens.begin(), t.tokens.end(), token) != t.tokens.end();
    };
    if (id.prompt == 2) {
      by_own_stop += t.tokens.back() == 11 || t.tokens.back() == 12 ? 1 : 0;
      EXPECT_EQ(t.finish_reason == FinishReason::stop_id, has(11) || has(12));
    } else if (id.prompt == 3) {
      EXPECT_EQ(t.finish_reason, FinishReason::length) << "nothing else ends it";
    } else {
      EXPECT_EQ(t.finish_reason == FinishReason::stop_id, has(kStop));
    }
  }
  EXPECT_GT(by_own_stop, 0U);
  expect_same(alone, generate_own(7, 0, 0));
  expect_same(alone, generate_own(5, 16, 3));
}

/// 12 prompts that begin alike, 3 responses each. `shared`: positions taken over.
Responses generate_alike(const BatcherLimits& limits, std::size_t& rows, std::size_t& shared) {
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  std::deque<Admission> queue = requests(12, 3);
  for (Admission& r : queue) {
    const auto prompt = static_cast<TokenId>(r.trajectory.id.prompt);
    r.prompt.assign(70, 5);
    for (TokenId i = 0; i < 4 + prompt % 3; ++i) r.prompt.push_back((prompt + 7 * i) % kVocab);
  }
  Responses results;
  while (!queue.empty() || batcher.active() > 0) {
    while (!queue.empty() && batcher.admit(queue.front())) queue.pop_front();
    for (Trajectory& t : commit(batcher, runner)) {
      const RequestId id = t.id;
      t.routing.clear();  // of other prompts than requests() has
      results.emplace(id, std::move(t));
    }
    shared += batcher.counts().shared;
    for (Admission& parked : batcher.take_parked()) queue.push_back(std::move(parked));
  }
  rows += runner.rows;
  return results;
}

TEST(Batcher, PromptsThatBeginAlikeAreComputedOnce) {
  BatcherLimits limits = plain();
  limits.share_prefixes = false;
  std::size_t all = 0;
  std::size_t none = 0;
  const Responses alone = generate_alike(limits, all, none);
  EXPECT_EQ(none, 0U);
  limits.share_prefixes = true;
  for (const std::int32_t batch : {1, 7, 64}) {
    limits.max_batch = batch;
    for (const std::int32_t chunk : {5, 64}) {
      limits.prefill_chunk = chunk;
      std::size_t rows = 0;
      std::size_t shared = 0;
      expect_same(alone, generate_alike(limits, rows, shared));
      EXPECT_EQ(shared, 11U * 64) << "four blocks of 16 positions for all prompts but the first";
      EXPECT_EQ(rows + shared, all);
    }
  }
  limits.kv_blocks = 14;  // prompts come and go
  limits.growth = 16;
  std::size_t rows = 0;
  std::size_t shared = 0;
  expect_same(alone, generate_alike(limits, rows, shared));
  EXPECT_GT(shared, 0U);
}

TEST(Batcher, NoPromptWaitsForOneWhoseKvIsOnItsWay) {
  BatcherLimits limits = plain();
  limits.share_prefixes = true;
  limits.max_batch = 3;
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  for (const std::uint32_t p : {1U, 2U}) {
    Admission r = request(p, 0);
    r.prompt.assign(6 * static_cast<std::size_t>(limits.kv_block), 5);
    ASSERT_TRUE(batcher.admit(r));
    if (p == 1) batcher.expect(r.trajectory.id, {limits.kv_block, 5 * limits.kv_block});
  }
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  (void)commit(batcher, runner);  // the first block of the first, which then has no more to do
  const Step& step = batcher.plan();
  ASSERT_EQ(step.parts.size(), 1U) << "the second prompt is computed meanwhile";
  EXPECT_EQ(step.parts[0].first_position, limits.kv_block) << "behind what is there of the first";
  EXPECT_EQ(batcher.counts().shared, static_cast<std::uint32_t>(limits.kv_block));
  (void)batcher.commit(runner.run(step));
}

TEST(Batcher, SamplesSayHowTheirRequestDraws) {
  BatcherLimits limits = plain();
  limits.max_batch = 3;
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  for (const std::uint32_t s : {0U, 1U}) {
    Admission r = own_request(4, s);
    ASSERT_TRUE(batcher.admit(r));
  }
  Admission other = own_request(0, 0);
  ASSERT_TRUE(batcher.admit(other));
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  while (batcher.decoding().size() < 3) (void)commit(batcher, runner);
  const std::vector<TokenId> drafted = {1, 2};
  const std::vector<std::int32_t> parents = {-1, 0};
  const std::vector<DraftTree> drafts = {{}, {drafted, parents}, {}};
  const Step& step = batcher.plan(drafts);
  ASSERT_EQ(step.draws.size(), 2U);
  std::vector<float> temperatures;
  for (const StepSample& sample : step.samples)
    temperatures.push_back(sample.draw < 0 ? -1 : step.draws.at(sample.draw).temperature);
  EXPECT_EQ(temperatures, (std::vector<float>{0.5F, 0.6F, 0.6F, 0.6F, -1}));
}

TEST(Batcher, GivenTokensAreNotedAsThoseOfAPrompt) {
  SamplingParams sampling = sampling_params();
  sampling.frequency_penalty = 1;
  sampling.logit_bias = {{2, 0.5F}, {30, -1}};
  BatcherLimits limits = plain();
  Batcher batcher(limits, sampling, {kStop}, nullptr);
  Admission r = request(1, 0);
  r.prompt = {1, 2};
  r.trajectory.tokens = {1, 1, 3, 4, 3, 5};
  r.trajectory.logprob = r.trajectory.sampling_logprob = std::vector<float>(6, 0);
  r.trajectory.kept = std::vector<std::int32_t>(6, 0);
  r.trajectory.turns = {{.given = 3, .end = 5}};
  ASSERT_TRUE(batcher.admit(r));
  const Step& step = batcher.plan();
  const std::vector<TokenNote> expected = {{1, 2, 0}, {2, 0, 0.5F}, {3, 1, 0},
                                           {4, 0, 0}, {5, 1, 0},    {30, TokenNote::kUnsaid, -1}};
  EXPECT_EQ(step.notes, expected);
  EXPECT_EQ(step.samples.at(0).notes, 6);
}

TEST(Batcher, WhatNobodyNeedsIsNotNoted) {
  BatcherLimits limits = plain();
  limits.prefill_chunk = 5;
  SamplingParams penal = sampling_params();
  penal.frequency_penalty = 1;
  Batcher in_parts(limits, penal, {kStop}, nullptr);
  Admission long_one = request(1, 0);
  long_one.prompt.assign(12, 3);
  ASSERT_TRUE(in_parts.admit(long_one));
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  for (int part = 0; part < 2; ++part) {
    const Step& step = in_parts.plan();
    EXPECT_EQ(step.tokens.size(), 5U);
    EXPECT_TRUE(step.notes.empty()) << "no sample asks for them";
    (void)in_parts.commit(runner.run(step));
  }
  EXPECT_EQ(in_parts.plan().notes.size(), 1U);
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  Admission r = request(1, 0);
  ASSERT_TRUE(batcher.admit(r));
  EXPECT_TRUE(batcher.plan().notes.empty());
}

TEST(Batcher, OwnStopsAreBannedBeforeMinTokens) {
  SamplingParams sampling = sampling_params();
  sampling.min_tokens = 9;
  BatcherLimits limits = plain();
  limits.max_batch = 3;
  Batcher batcher(limits, sampling, {kStop}, nullptr);
  for (const std::uint32_t p : {0U, 2U, 3U}) {
    Admission r = own_request(p, 0);
    ASSERT_TRUE(batcher.admit(r));
  }
  const Step& step = batcher.plan();
  ASSERT_EQ(step.samples.size(), 3U);
  EXPECT_EQ(step.samples[0].ban, StepSample::run_stops);
  for (int i = 1; i < 3; ++i) EXPECT_EQ(step.samples[i].ban, StepSample::own_stops);
  EXPECT_EQ(step.samples[1].first_banned, 0);
  EXPECT_EQ(step.samples[1].banned, 2);
  EXPECT_EQ(step.samples[2].banned, 0) << "none";
  EXPECT_EQ(step.banned, (std::vector<TokenId>{11, 12}));
}

TEST(Batcher, RefusesWhatDoesNotFitAndLosesNothing) {
  BatcherLimits limits = plain();
  limits.max_batch = 4;
  const Admission longest = request(5, 0);
  limits.kv_blocks = kv::Sequences::blocks_needed(
      std::ssize(longest.prompt) + sampling_params().max_tokens, limits.kv_block);
  Batcher small(limits, sampling_params(), {kStop}, nullptr);
  Admission a = request(5, 0);
  Admission b = request(5, 1);
  ASSERT_TRUE(small.admit(a));
  EXPECT_FALSE(small.admit(b));
  EXPECT_EQ(b.prompt.size(), 100U);  // untouched
}

TEST(Batcher, EvictedPrefixesGiveBackTheirReservation) {
  BatcherLimits limits = plain();
  limits.kv_blocks = 30;
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  for (std::uint32_t p = 0; p < 60; ++p) {  // far more prompts than the pool holds
    Admission r = request(p, 0);
    ASSERT_TRUE(batcher.admit(r)) << "prompt " << p;
    while (batcher.active() > 0) {
      static_cast<void>(commit(batcher, runner));
    }
  }
}

TEST(Batcher, AStepTakesNoMorePromptThanTheChunk) {
  BatcherLimits limits = plain();
  limits.max_batch = 64;
  limits.kv_blocks = 400;
  limits.prefill_chunk = 40;
  Batcher batcher(limits, sampling_params(), {kStop}, nullptr);
  BlockCheckingRunner runner(limits.kv_blocks, limits.kv_block, kVocab);
  for (std::uint32_t p = 0; p < 6; ++p) {
    Admission r = request(p, 0);
    ASSERT_TRUE(batcher.admit(r));
  }
  std::uint32_t prefilled = 0;
  while (batcher.active() > 0) {
    const Step& step = batcher.plan();
    EXPECT_LE(batcher.counts().prefill_tokens, 40U);
    EXPECT_LE(step.tokens.size(), 40U + batcher.counts().decode_tokens);
    prefilled += batcher.counts().prefill_tokens;
    static_cast<void>(commit(batcher, runner, step));
  }
  EXPECT_GT(prefilled, 100U);
}

class Letters final : public TokenText {
 public:
  [[nodiscard]] std::string_view bytes_of(TokenId token) const override {
    static const std::string text = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    return std::string_view(text).substr(token, 1);
  }
};

TEST(Batcher, StopStringsEndAResponseWhereTheyAreComplete) {
  World world{plain()};
  const Responses reference = generate(world);
  const Letters letters;
  // A string that a response is known to contain in its middle.
  const Trajectory* longest = nullptr;
  for (const auto& [id, t] : reference) {
    if (longest == nullptr || t.tokens.size() > longest->tokens.size()) longest = &t;
  }
  ASSERT_GT(longest->tokens.size(), 20U);
  std::string stop;
  for (int i = 10; i < 14; ++i) stop += letters.bytes_of(longest->tokens[i]);
  SamplingParams sampling = sampling_params();
  sampling.stop_strings = {"zzzzzzzzzzzz", stop};
  Batcher batcher(world.limits, sampling, {kStop}, &letters);
  BlockCheckingRunner runner(world.limits.kv_blocks, world.limits.kv_block, kVocab);
  Admission r = request(longest->id.prompt, longest->id.sample);
  ASSERT_TRUE(batcher.admit(r));
  std::vector<Trajectory> done;
  while (done.empty()) done = commit(batcher, runner);
  EXPECT_EQ(done[0].finish_reason, FinishReason::stop_string);
  EXPECT_EQ(done[0].tokens.size(), 14U);

  // Interrupted in the middle of the string, it ends at the same place.
  Batcher before(world.limits, sampling, {kStop}, &letters);
  r = request(longest->id.prompt, longest->id.sample);
  ASSERT_TRUE(before.admit(r));
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(commit(before, runner).empty());
  std::vector<Trajectory> partial = before.stop();
  ASSERT_EQ(partial.at(0).tokens.size(), 12U);
  Batcher after(world.limits, sampling, {kStop}, &letters);
  r = request(longest->id.prompt, longest->id.sample);
  r.trajectory = partial[0];
  ASSERT_TRUE(after.admit(r));
  done.clear();
  while (done.empty()) done = commit(after, runner);
  EXPECT_EQ(done[0].finish_reason, FinishReason::stop_string);
  EXPECT_EQ(done[0].tokens.size(), 14U);
}

}  // namespace
}  // namespace paceline::engine
