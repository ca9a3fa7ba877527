// A modelled head drafts what was recorded: as deep as its judge lets it, and as right as that
// depth was.
#include "runtime/sim/modelled_head.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <stdexcept>
#include <vector>

#include "tests/runtime/sim/modelled_work.hpp"
#include "tests/runtime/sim/scripted_actor.hpp"

namespace paceline::sim {
namespace {

constexpr int kCalls = StopPoint::kCalls;
constexpr int kStates = StopPoint::kStates;

/// After c calls `accepted` tokens are, or as many as there are calls.
StopPoint point(RequestId id, std::uint32_t first, int accepted) {
  StopPoint p;
  p.id = id;
  p.first = first;
  for (int level = 0; level + 1 < kCalls; ++level) {
    for (int rank = 0; rank < kStates; ++rank)
      p.states[level][rank] = -0.1F * static_cast<float>(level + 1) - static_cast<float>(rank);
  }
  for (int calls = 0; calls < kCalls; ++calls) {
    p.accepted[calls] = static_cast<std::uint8_t>(std::min(accepted, calls + 1));
    p.lengths[calls][p.accepted[calls]] = 1;
  }
  return p;
}

DrafterCosts costs() {
  return {
      .name = "head", .first = CostCurve({{1, 1}}), .round = CostCurve({{1, 0.1}}), .catch_up = {}};
}

/// Ends every draft after that level.
class EndsAfter final : public draft::Levels {
 public:
  explicit EndsAfter(int level) : last_(level) {}
  void judge(int level, std::span<draft::GrowingDraft> drafts) override {
    ++asked;
    for (draft::GrowingDraft& draft : drafts) {
      EXPECT_EQ(draft.frontier.size(), static_cast<std::size_t>(kStates));
      draft.grows = level < last_;
    }
  }
  int asked = 0;

 private:
  int last_;
};

class Drafting {
 public:
  explicit Drafting(std::vector<StopPoint> recorded)
      : work(modelled_work(1, 2)),
        responses(work, kNoiseSeed, 0),
        points(std::move(recorded)),
        costs_(costs()),
        actor_(world),
        head(world, actor_.id, costs_, 1, work.acceptance, responses, points) {
    head.start({.id = {0, 0},
                .prompt = work.prompts[0].tokens,
                .response = {},
                .noise = noise_of(work, {0, 0})},
               0);
  }
  struct Drafted {
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::vector<float> scores;
    std::int32_t calls = 0;
    double seconds = 0;
  };
  Drafted propose(int tokens, int length, int paths, draft::Levels* levels,
                  std::vector<TokenId> assumed = {}) {
    Drafted drafted;
    drafted.tokens.resize(tokens);
    drafted.parents.resize(tokens);
    drafted.scores.resize(tokens);
    draft::DraftSlot slot{{0, 0},
                          {tokens, length, paths},
                          {drafted.tokens, drafted.parents, drafted.scores},
                          assumed};
    const double before = world.clock(actor_.id).now();
    head.propose({&slot, 1}, before, levels);
    drafted.seconds = world.clock(actor_.id).now() - before;
    drafted.calls = slot.calls;
    drafted.tokens.resize(slot.count);
    return drafted;
  }
  /// Tokens of the longest path from the text on that the response says.
  int right(const Drafted& drafted, std::int32_t from = 0) {
    const Response& response = responses.of(noise_of(work, {0, 0}));
    std::vector<int> depth(drafted.tokens.size(), -1);  // -1: not on the response's path
    int most = 0;
    for (std::size_t t = 0; t < drafted.tokens.size(); ++t) {
      const std::int32_t parent = drafted.parents[t];
      EXPECT_LT(parent, static_cast<std::int32_t>(t));
      const int before = parent < 0 ? 0 : depth[parent];
      if (parent >= 0) {
        EXPECT_LE(drafted.scores[t], drafted.scores[parent]);
      }
      if (before >= 0 && responses.token(response, from + before) == drafted.tokens[t])
        most = std::max(most, depth[t] = before + 1);
    }
    return most;
  }

  World world;
  Workload work;
  Responses responses;
  StopPoints points;

 private:
  DrafterCosts costs_;
  ScriptedActor actor_;

 public:
  ModelledHead head;
};

TEST(ModelledHead, DraftsAsDeepAsItsJudgeSaysAndIsAsRightAsThatDepthWas) {
  for (int accepted = 0; accepted <= kCalls; ++accepted) {
    Drafting d({point({0, 0}, 0, accepted)});
    for (int calls = 1; calls <= kCalls; ++calls) {
      EndsAfter judge(calls);
      const auto drafted = d.propose(kCalls * kStates, kCalls, kStates, &judge);
      EXPECT_EQ(drafted.calls, calls);
      EXPECT_EQ(judge.asked, std::min(calls, kCalls - 1));
      // What never was accepted at the last level is as good as impossible there.
      const int levels = calls == kCalls && accepted < kCalls ? kCalls - 1 : calls;
      EXPECT_GE(drafted.tokens.size(), static_cast<std::size_t>(levels * kStates));
      EXPECT_EQ(d.right(drafted), std::min(accepted, calls));
      EXPECT_NEAR(drafted.seconds, 1 + 0.1 * (calls - 1) + kStopSeconds * judge.asked, 1e-9);
    }
  }
}

TEST(ModelledHead, TheLikeliestTokensStandOfASmallerTree) {
  Drafting d({point({0, 0}, 0, kCalls)});
  const auto drafted = d.propose(9, kCalls, kStates, nullptr);
  EXPECT_EQ(drafted.tokens.size(), 9U);
  EXPECT_EQ(drafted.calls, kCalls);
  for (const float score : std::span(drafted.scores).first(9)) EXPECT_GE(score, std::exp(-1.2F));
}

TEST(ModelledHead, WhatFollowsAWrongAssumptionIsWrong) {
  Drafting d({point({0, 0}, 0, kCalls)});
  const Response& response = d.responses.of(noise_of(d.work, {0, 0}));
  const TokenId first = d.responses.token(response, 0);
  EXPECT_EQ(d.right(d.propose(80, kCalls, kStates, nullptr, {first}), 1), kCalls);
  const TokenId wrong = wrong_token(first, d.responses.vocab());
  EXPECT_EQ(d.right(d.propose(80, kCalls, kStates, nullptr, {wrong}), 1), 0);
}

TEST(ModelledHead, DraftsEndWithTheResponse) {
  Drafting d({point({0, 0}, 0, kCalls)});
  const Response& response = d.responses.of(noise_of(d.work, {0, 0}));
  std::vector<TokenId> said;
  for (std::int32_t i = 0; i < 57; ++i) said.push_back(d.responses.token(response, i));
  d.head.commit({0, 0}, said, 0);
  const auto drafted = d.propose(80, kCalls, kStates, nullptr);
  EXPECT_EQ(drafted.calls, 3);
  EXPECT_EQ(d.right(drafted, 57), 3);
}

TEST(StopPoints, ARequestGoesByTheTreesOfOneRecordedRequest) {
  std::vector<StopPoint> recorded;
  for (std::uint32_t sample = 0; sample < 5; ++sample) {
    for (std::uint32_t first = 0; first < 40; first += 10)
      recorded.push_back(point({0, sample}, first, static_cast<int>(sample)));
  }
  const StopPoints points(recorded);
  const Workload work = modelled_work(1, 32);
  std::set<std::uint32_t> all;
  for (std::uint32_t sample = 0; sample < 32; ++sample) {
    std::set<std::uint32_t> of_one, begins;
    for (std::int32_t index = 0; index < 60; ++index) {
      const StopPoint& p = points.at(noise_of(work, {0, sample}), index);
      of_one.insert(p.id.sample);
      begins.insert(p.first);
    }
    EXPECT_EQ(of_one.size(), 1U);
    EXPECT_EQ(begins.size(), 4U);
    all.merge(of_one);
  }
  EXPECT_EQ(all.size(), 5U);
  // Of levels that the target went on to, 0 of 1, 1 of 2 ... 4 of 5.
  EXPECT_NEAR(points.acceptance(), 10.0 / 15, 1e-9);
  EXPECT_THROW(StopPoints({}), std::invalid_argument);
}

}  // namespace
}  // namespace paceline::sim
