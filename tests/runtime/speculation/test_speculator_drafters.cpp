// Several drafters of one speculator: which are asked, which are verified, what is learned of them.
#include <gtest/gtest.h>

#include "tests/runtime/speculation/scripted_drafters.hpp"

namespace paceline::speculation {
namespace {

TEST(SpeculatorOfDrafters, ALaterDrafterIsAskedOnlyWhereItMayDoBetter) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  const auto outcome_with = [&](int first_wrong, int second_wrong, Log& first, Log& second) {
    Speculator speculator(
        roster_of(std::make_unique<ScriptedDrafter>(plain.texts, first_wrong, 0.9F, first),
                  std::make_unique<ScriptedDrafter>(plain.texts, second_wrong, 0.5F, second)),
        std::make_unique<policy::FixedLength>(6), {.max_tokens = 6, .max_length = 6, .paths = 1},
        clock);
    const Outcome outcome = run(&speculator, clock);
    EXPECT_EQ(outcome.texts, plain.texts);
    EXPECT_EQ(first.committed, plain.texts);  // told of everything, whoever drafted
    EXPECT_EQ(second.committed, plain.texts);
    return outcome;
  };
  Log good, bad;
  const Outcome good_first = outcome_with(6, 0, good, bad);
  EXPECT_LT(bad.proposals, good.proposals / 2);
  Log bad_first, good_second;
  const Outcome bad_then_good = outcome_with(0, 6, bad_first, good_second);
  EXPECT_GT(good_second.proposals, bad_first.proposals * 3 / 4);
  EXPECT_LT(bad_then_good.steps, plain.steps / 2);
  EXPECT_LT(good_first.steps, plain.steps / 2);
}

TEST(SpeculatorOfDrafters, WhatRanAheadIsABranchBesideTheDraftThatIsMade) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  const auto tallies_with = [&](int own_right, int ahead_right, bool present, Outcome& outcome) {
    Log own, ahead;
    Speculator speculator(
        roster_of(std::make_unique<ScriptedDrafter>(plain.texts, own_right, 0.9F, own),
                  std::make_unique<AheadDrafter>(plain.texts, ahead_right, ahead, present)),
        std::make_unique<policy::FixedLength>(4), {.max_tokens = 8, .max_length = 4, .paths = 1},
        clock);
    outcome = run(&speculator, clock);
    EXPECT_EQ(outcome.texts, plain.texts);
    EXPECT_EQ(ahead.committed, plain.texts);
    EXPECT_EQ(ahead.proposals > 0, present);
    return std::vector<DraftTally>(speculator.tallies().begin(), speculator.tallies().end());
  };
  Outcome without, behind, before;
  (void)tallies_with(1, 3, false, without);
  const std::vector<DraftTally> longer = tallies_with(1, 3, true, before);
  const std::vector<DraftTally> shorter = tallies_with(3, 1, true, behind);
  EXPECT_LT(before.steps, without.steps * 3 / 4) << "the longest branch counts";
  EXPECT_EQ(before.steps, behind.steps) << "whoever it is of";
  // Each is judged by all that it drafted, also where the other got further.
  for (const auto& [three, one] : {std::pair(longer[1], longer[0]), {shorter[0], shorter[1]}}) {
    EXPECT_GT(three.accepted, 2 * one.accepted);
    EXPECT_GT(one.accepted, 0U);
    EXPECT_GT(one.tried, one.accepted);
  }
}

TEST(SpeculatorOfDrafters, AReservedDrafterDraftsInRacesAndOnTrialAlone) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  const auto make = [&](bool reserved, Log& first, Log& second) {
    DrafterRoster roster =
        roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 0, 0.9F, first),
                  std::make_unique<ScriptedDrafter>(plain.texts, 6, 0.9F, second));
    roster[1].reserved = reserved;
    return Speculator(std::move(roster), std::make_unique<policy::FixedLength>(6),
                      {.max_tokens = 6, .max_length = 6, .paths = 1}, clock);
  };
  const auto asked = [&](bool reserved) {
    Log first, second;
    Speculator speculator = make(reserved, first, second);
    EXPECT_EQ(run(&speculator, clock).texts, plain.texts);
    EXPECT_GT(second.proposals, 0) << "never on trial";
    return second.proposals;
  };
  EXPECT_LT(asked(true), asked(false) / 8);

  // Raced for by it, a request is drafted for by it alone.
  Log first, second;
  Speculator speculator = make(true, first, second);
  const Admission raced = request(1, 0);
  speculator.start(raced, 1);
  const std::vector<engine::Decoding> decoding{{raced.trajectory.id, 0, 15, 6}};
  const auto drafts = speculator.draft(decoding, 0);
  ASSERT_EQ(drafts.size(), 1U);
  EXPECT_EQ(drafts[0].tokens.size(), 6U);
  EXPECT_EQ(first.proposals, 0);
}

TEST(SpeculatorOfDrafters, BeginsWithWhatIsKnownOfItsDrafters) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  // The first is always wrong: how long does it take until the other is asked?
  const auto outcome_with = [&](std::pair<double, double> known, Log& second) {
    Log first;
    DrafterRoster roster =
        roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 0, 0.9F, first),
                  std::make_unique<ScriptedDrafter>(plain.texts, 6, 0.9F, second));
    std::tie(roster[0].acceptance, roster[1].acceptance) = known;
    Speculator speculator(std::move(roster), std::make_unique<policy::FixedLength>(6),
                          {.max_tokens = 6, .max_length = 6, .paths = 1}, clock);
    const Outcome outcome = run(&speculator, clock);
    EXPECT_EQ(outcome.texts, plain.texts);
    return outcome;
  };
  Log unknown, known;
  const Outcome found_out =
      outcome_with({policy::kUnknownAcceptance, policy::kUnknownAcceptance}, unknown);
  const Outcome knew = outcome_with({0.05, 0.95}, known);
  EXPECT_LT(knew.steps, found_out.steps);
  EXPECT_LT(knew.drafted, found_out.drafted);
}

/// The same length for all, by the first so many drafters; keeps what is hoped of them.
class LeadingDrafters final : public policy::DraftLengthPolicy {
 public:
  LeadingDrafters(std::size_t leading, std::vector<policy::DraftHope>& hopes)
      : leading_(leading), hopes_(hopes) {}
  bool considers(const policy::DraftQuery&) override { return true; }
  void choose(const policy::DraftQuery& query, std::span<int> lengths) override {
    policy::draft_alike(query, 6, lengths);
    hopes_.assign(query.hopes.begin(), query.hopes.end());
  }
  [[nodiscard]] bool asks(std::size_t drafter) const override { return drafter < leading_; }

 private:
  std::size_t leading_;
  std::vector<policy::DraftHope>& hopes_;
};

TEST(SpeculatorOfDrafters, AreAskedAsFarAsThePolicySaysAndJudgedAlsoWhereAnotherIsVerified) {
  const SteppedClock clock;
  const Outcome plain = run(nullptr, clock);
  const auto run_with = [&](std::size_t leading, Log& first, Log& second) {
    std::vector<policy::DraftHope> hopes;
    DrafterRoster roster =
        roster_of(std::make_unique<ScriptedDrafter>(plain.texts, 1, 0.9F, first),
                  std::make_unique<ScriptedDrafter>(plain.texts, 6, 0.9F, second));
    roster[0].acceptance = 0.05;
    roster[1].acceptance = 0.95;
    Speculator speculator(std::move(roster), std::make_unique<LeadingDrafters>(leading, hopes),
                          {.max_tokens = 6, .max_length = 6, .paths = 1}, clock);
    EXPECT_EQ(run(&speculator, clock).texts, plain.texts);
    return hopes;
  };
  Log first[2], both, seldom, unasked, free;
  const std::vector<policy::DraftHope> hopes = run_with(2, first[0], both);
  run_with(1, first[1], seldom);
  run_with(0, unasked, free);
  EXPECT_EQ(unasked.proposals, 0) << "the first is on trial never";
  EXPECT_GT(seldom.proposals, 0) << "never on trial";
  EXPECT_LT(seldom.proposals, both.proposals / 3);
  // One token of six is right, then six of six; the second one's drafts are verified.
  ASSERT_FALSE(hopes.empty());
  EXPECT_NEAR(hopes.front().found, 1, 0.01);
  EXPECT_NEAR(hopes.front().next, 0.5, 0.15);
  EXPECT_GT(hopes.back().next, 0.9);
}

}  // namespace
}  // namespace paceline::speculation
