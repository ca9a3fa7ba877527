// Any interleaving of the roles must generate every response once, and the same responses. More
// layouts and faults: tests/sim/campaign.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "tests/runtime/roles/world.hpp"

namespace paceline::roles {

using namespace protocol;

namespace {

using namespace test;

TEST(Roles, AnyNumberOfGroupsInAnyOrderGeneratesTheSame) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  EXPECT_TRUE(reference.complete);
  EXPECT_EQ(reference.finished.size(), 28U);
  EXPECT_EQ(reference.files_read, 3U);  // once a group, whatever the siblings
  for (const int groups : {1, 2, 3, 5}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      const Outcome outcome = simulate(groups, seed, empty_responses(7, 4), 0);
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
    }
  }
}

/// All KV, none of it, or about half, and by chance or because a group has run dry.
std::vector<Moves> all_moves() {
  std::vector<Moves> all;
  for (const std::int32_t growth : {0, 7}) {
    for (const policy::MoveCosts& costs : {policy::MoveCosts{}, policy::costs_by_position(1, 1000),
                                           policy::costs_by_position(1, 1)}) {
      all.push_back({.shuffle = true, .costs = costs, .growth = growth});
      all.push_back({.rebalance = true, .costs = costs, .growth = growth});
    }
  }
  return all;
}

TEST(Roles, RequestsThatMoveGenerateTheSame) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const Moves& moves : all_moves()) {
    std::size_t made = 0;
    std::uint64_t sent = 0;
    for (unsigned seed = 0; seed < 10; ++seed) {
      const Outcome outcome =
          simulate(2 + static_cast<int>(seed % 3), seed, empty_responses(7, 4), 0, -1, moves);
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      made += outcome.progress.moves;
      sent += outcome.sent;
    }
    EXPECT_GT(made, moves.shuffle ? 100U : 5U);
    const bool sends = policy::split_move(moves.costs, 64, 0, 16).first < 64;
    EXPECT_EQ(sent > 0, sends) << sent;
  }
}

/// Layouts in which all happens that can, with the number of drafter ranks: moves, parking, races
/// by chance and for the last requests, and changes of roles.
std::vector<std::pair<Moves, int>> layouts() {
  std::vector<std::pair<Moves, int>> all{{{}, 0}};
  for (const Moves& moves : all_moves()) all.emplace_back(moves, 0);
  for (const std::vector<int>& degrees :
       std::vector<std::vector<int>>{{1, 1, 1}, {1, 2, 1}, {2, 2}, {4, 2, 1}}) {
    for (int number = 0; number < 12; ++number) {
      Moves moves{.shuffle = number % 2 == 1,
                  .rebalance = number % 3 != 0,
                  .costs = policy::costs_by_position(1, 1),
                  .growth = number % 5 == 4 ? 7 : 0,
                  .kv_blocks = number % 5 == 4 ? 14 : 70,
                  .degrees = degrees};
      moves.shuffle_roles = number % 3 > 0;
      moves.best_of_n = number % 4 == 3;
      moves.shuffle_races = number % 4 == 2;
      all.emplace_back(moves, number % 3);
    }
  }
  return all;
}

TEST(Roles, RacesAndChangesOfRolesChangeNothing) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  Outcome sum;
  std::uint64_t of_their_own = 0;  // races for the last requests
  std::uint64_t accepted = 0;
  for (const auto& [moves, drafters] : layouts()) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      const int groups = moves.degrees.empty() ? 3 : static_cast<int>(moves.degrees.size());
      const Outcome outcome =
          simulate(groups, seed, empty_responses(7, 4), 0, -1, moves,
                   {drafters, 1 + static_cast<int>(seed % 5), &reference.finished, 0.9});
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      (moves.best_of_n ? of_their_own : sum.progress.races) += outcome.progress.races;
      sum.progress.placements += outcome.progress.placements;
      sum.raced += outcome.raced;
      sum.foretold += outcome.foretold;
      for (const RankSummary& drafter : outcome.drafters) accepted += drafter.accepted;
    }
  }
  EXPECT_GT(sum.progress.races, 500U);
  EXPECT_GT(of_their_own, 100U);
  EXPECT_GT(sum.raced, 500U);
  EXPECT_GT(sum.foretold, 100U);
  EXPECT_GT(sum.progress.placements, 200U);
  EXPECT_GT(accepted, 1000U);
}

TEST(Roles, WorkForTheNextStepChangesNothingAndIsRight) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::size_t whole = 0;
  std::size_t cut = 0;
  for (auto [moves, drafters] : layouts()) {
    moves.pregenerates = true;
    for (unsigned seed = 0; seed < 3; ++seed) {
      const int groups = moves.degrees.empty() ? 3 : static_cast<int>(moves.degrees.size());
      const Outcome outcome =
          simulate(groups, seed, empty_responses(7, 4), 0, -1, moves,
                   {drafters, 1 + static_cast<int>(seed % 5), &reference.finished, 0.9});
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      std::uint64_t tokens = 0;
      for (const Trajectory& text : outcome.pregenerated) {
        const bool partial = text.finish_reason == FinishReason::partial;
        (partial ? cut : whole) += 1;
        tokens += text.tokens.size();
        const std::vector<TokenId>& right = reference.finished.at(text.id).tokens;
        ASSERT_LE(text.tokens.size(), right.size());
        EXPECT_TRUE(std::equal(text.tokens.begin(), text.tokens.end(), right.begin()));
        EXPECT_TRUE(partial || text.tokens.size() == right.size());
      }
      EXPECT_EQ(tokens, outcome.pregenerated_tokens);
    }
  }
  EXPECT_GT(whole, 100U);
  EXPECT_GT(cut, 100U);
}

/// Checks that ended responses are right, and partial ones beginnings of them. Returns the rest of
/// the work.
std::vector<Trajectory> rest_of(const Outcome& stopped, const Responses& whole) {
  for (const auto& [id, t] : stopped.finished) EXPECT_EQ(t.tokens, whole.at(id).tokens);
  std::map<RequestId, Trajectory> partial;
  for (const Trajectory& t : stopped.partial) {
    EXPECT_TRUE(partial.emplace(t.id, t).second) << "handed in twice";
    const std::vector<TokenId>& tokens = whole.at(t.id).tokens;
    EXPECT_TRUE(t.tokens.size() <= tokens.size() &&
                std::equal(t.tokens.begin(), t.tokens.end(), tokens.begin()));
  }
  std::vector<Trajectory> rest;
  for (const Trajectory& t : empty_responses(7, 4)) {
    if (stopped.finished.contains(t.id)) continue;
    const auto found = partial.find(t.id);
    rest.push_back(found != partial.end() ? found->second : t);
  }
  return rest;
}

TEST(Roles, StoppedAnywhereAndResumedItIsTheSame) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  int stopped = 0;
  for (const auto& [moves, drafters] : layouts()) {
    for (int stop = 0; stop < 1000; stop += 139) {
      const int groups = moves.degrees.empty() ? 3 : static_cast<int>(moves.degrees.size());
      Outcome first = simulate(groups, static_cast<unsigned>(stop), empty_responses(7, 4), 0, stop,
                               moves, {drafters, 3, &reference.finished, 0.9});
      const std::vector<Trajectory> rest = rest_of(first, reference.finished);
      EXPECT_EQ(first.complete, rest.empty());
      if (rest.empty()) continue;
      ++stopped;
      Outcome second = simulate(2, 4, rest, first.finished.size());
      EXPECT_TRUE(second.complete);
      second.finished.merge(first.finished);
      expect_same(reference.finished, second.finished);
    }
  }
  EXPECT_GT(stopped, 200);
}

TEST(Roles, DrafterRanksChangeNothingAndWasteNoMoreThanTheWindowAllows) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const double accuracy : {0.0, 0.6, 0.95, 1.0}) {
    // Of what was judged as much was right as of all that the drafters would say.
    double right = 0;
    std::size_t said = 0;
    for (const auto& [id, t] : reference.finished) {
      said += t.tokens.size();
      for (std::size_t at = 0; at < t.tokens.size(); ++at)
        right += OracleDrafter::right(id, at, accuracy) ? 1 : 0;
    }
    right /= static_cast<double>(said);
    DraftTally all;
    for (int window = 1; window <= 8; ++window) {
      std::uint64_t accepted = 0;
      DraftTally tally;
      for (unsigned seed = 0; seed < 6; ++seed) {
        const int groups = 1 + static_cast<int>(seed % 3);
        const Moves moves{.shuffle = seed % 2 == 1, .costs = policy::costs_by_position(1, 1)};
        const Outcome outcome =
            simulate(groups, seed, empty_responses(7, 4), 0, -1, moves,
                     {1 + static_cast<int>(seed / 2 % 2), window, &reference.finished, accuracy});
        EXPECT_TRUE(outcome.complete);
        expect_same(reference.finished, outcome.finished);
        // Each lease and move has a version of its own. A drafter rank learns of most of them.
        EXPECT_LE(outcome.holders, 28 + outcome.progress.moves);
        EXPECT_GE(outcome.holders, 28 + outcome.progress.moves / 2);
        for (const RankSummary& drafter : outcome.drafters) {
          EXPECT_LE(drafter.most_wasted, 2 * static_cast<std::uint32_t>(window) - 1);
          EXPECT_GE(drafter.drafted, drafter.accepted + drafter.wasted);
          accepted += drafter.accepted;
        }
        tally.tried += outcome.tally.tried;
        tally.accepted += outcome.tally.accepted;
      }
      EXPECT_EQ(tally.accepted, accepted);
      EXPECT_GT(tally.tried, 500U);
      const auto tried = static_cast<double>(tally.tried);
      const double deviation = std::sqrt(right * (1 - right) / tried);
      EXPECT_NEAR(static_cast<double>(tally.accepted) / tried, right, std::max(0.02, 3 * deviation))
          << "window " << window << ", accuracy " << accuracy;
      if (accuracy == 0) {
        EXPECT_EQ(accepted, 0U);
      } else {
        EXPECT_GT(accepted, 500U);
      }
      all.tried += tally.tried;
      all.accepted += tally.accepted;
    }
    EXPECT_NEAR(static_cast<double>(all.accepted) / static_cast<double>(all.tried), right, 0.01);
  }
}

TEST(Roles, DraftsForOutcomesChangeNothingAndAreThereInTime) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::uint64_t foreseen = 0;
  std::uint64_t while_roles_change = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const auto how = seed % 4 == 0 ? chaos::Misbehaviour::garbage : chaos::Misbehaviour::none;
    Moves moves{.shuffle = seed % 2 == 1, .costs = policy::costs_by_position(1, 1)};
    moves.shuffle_roles = seed % 6 == 5;
    const int window = 1 + static_cast<int>(seed % 5);
    const Outcome outcome = simulate(
        1 + static_cast<int>(seed % 3), seed, empty_responses(7, 4), 0, -1, moves,
        {1 + static_cast<int>(seed / 2 % 2), window, &reference.finished, 0.8, how, false, true});
    EXPECT_TRUE(outcome.complete);
    expect_same(reference.finished, outcome.finished);
    for (const RankSummary& drafter : outcome.drafters) {
      EXPECT_LE(drafter.most_wasted, 4 * static_cast<std::uint32_t>(window) - 1);
      EXPECT_GE(drafter.drafted, drafter.accepted + drafter.wasted);
    }
    foreseen += outcome.foreseen;
    if (moves.shuffle_roles) while_roles_change += outcome.foreseen;
  }
  EXPECT_GT(foreseen, 50U);
  EXPECT_GT(while_roles_change, 10U);
}

// Each row that arrives is that of its position, whatever moves, whoever drafts and whatever
// becomes of ranks; and there are drafts.
TEST(Roles, WhatTheTargetComputesReachesDrafterRanks) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (unsigned seed = 0; seed < 24; ++seed) {
    const auto how = seed % 3 == 0
                         ? chaos::Misbehaviour::none
                         : std::vector{chaos::Misbehaviour::stall, chaos::Misbehaviour::flood,
                                       chaos::Misbehaviour::garbage}[seed / 3 % 3];
    Moves moves{.shuffle = seed % 2 == 1, .costs = policy::costs_by_position(1, 1)};
    moves.chunk = seed % 4 == 2 ? 8 : 0;
    const bool changes = seed >= 16;
    if (changes) moves.degrees = {2, 1};
    moves.rebalance = moves.shuffle_roles = changes;
    const Outcome outcome = simulate(
        changes ? 2 : 1 + static_cast<int>(seed % 3), seed, empty_responses(7, 4), 0, -1, moves,
        {1 + static_cast<int>(seed / 2 % 2), 4, &reference.finished, 0.9, how, true});
    EXPECT_TRUE(outcome.complete);
    expect_same(reference.finished, outcome.finished);
    if (changes) continue;
    std::uint64_t accepted = 0;
    for (const RankSummary& drafter : outcome.drafters) {
      accepted += drafter.accepted;
      EXPECT_EQ(drafter.invalid, 0U);
    }
    EXPECT_GT(accepted, how == chaos::Misbehaviour::none ? 50U : 0U) << seed;
  }
}

bool says(const Outcome& outcome, const std::string& what) {
  return std::any_of(outcome.warnings.begin(), outcome.warnings.end(),
                     [&](const std::string& text) { return text.find(what) != text.npos; });
}

TEST(Roles, DraftersThatMisbehaveChangeNothingAndAreTold) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::size_t stalls = 0;
  for (const auto how :
       {chaos::Misbehaviour::stall, chaos::Misbehaviour::flood, chaos::Misbehaviour::garbage}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      const int groups = 1 + static_cast<int>(seed % 2);
      const Moves moves{.shuffle = seed % 3 == 1, .costs = policy::costs_by_position(1, 1)};
      const Outcome outcome =
          simulate(groups, seed, empty_responses(7, 4), 0, -1, moves,
                   {1 + static_cast<int>(seed / 3), 4, &reference.finished, 0.8, how});
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      EXPECT_LT(outcome.warnings.size(), 40U);
      if (how == chaos::Misbehaviour::stall && says(outcome, "has said nothing for")) ++stalls;
      if (how == chaos::Misbehaviour::flood) {
        EXPECT_TRUE(says(outcome, " floods"));
        EXPECT_GT(outcome.remote.flooded, 1000U);
      }
      if (how == chaos::Misbehaviour::garbage) {
        EXPECT_TRUE(says(outcome, "they are dropped"));
        EXPECT_TRUE(says(outcome, ", totals: "));
        EXPECT_GT(outcome.remote.invalid, 100U);
      }
    }
  }
  EXPECT_GE(stalls, 4U);
}

TEST(Roles, NothingToDoEndsAtOnce) {
  const Outcome outcome = simulate(2, 1, {}, 28);
  EXPECT_TRUE(outcome.complete);
  EXPECT_TRUE(outcome.finished.empty());
}

TEST(Messages, RoundTripAndRefusal) {
  Lease lease;
  lease.request.trajectory = {.id = {3, 4},
                              .tokens = {1, 2},
                              .logprob = {-1.0F, -2.0F},
                              .sampling_logprob = {-0.5F, -1.5F},
                              .kept = {1, 2},
                              .kept_ids = {1, 2, 5},
                              .top_ids = {3, 4},
                              .top_logprob = {-1, -0.5F},
                              .routing = {},
                              .weight_version = 9};
  lease.request.prompt = {10, 11, 12};
  lease.request.noise = {123, 456};
  lease.request.until = 77;
  lease.request.sampling = {.max_tokens = 40,
                            .stops = StopSet{{7, 8}, {"a", "\n\n"}},
                            .draw = TokenDraw{0.5F, 20, 0.9F, 0.1F, 1.5F, 1, -1},
                            .logit_bias = std::vector<LogitBias>{{3, -1}},
                            .seed = 1ULL << 63};
  const Message decoded = decode(encode(lease));
  const Admission& got = std::get<Lease>(decoded).request;
  EXPECT_EQ(got.trajectory.id, lease.request.trajectory.id);
  EXPECT_EQ(got.trajectory.logprob, lease.request.trajectory.logprob);
  EXPECT_EQ(got.trajectory.kept, lease.request.trajectory.kept);
  EXPECT_EQ(got.trajectory.kept_ids, lease.request.trajectory.kept_ids);
  EXPECT_EQ(got.trajectory.top_ids, lease.request.trajectory.top_ids);
  EXPECT_EQ(got.trajectory.top_logprob, lease.request.trajectory.top_logprob);
  EXPECT_EQ(got.trajectory.weight_version, 9U);
  EXPECT_EQ(got.prompt, lease.request.prompt);
  EXPECT_EQ(got.noise, lease.request.noise);
  EXPECT_EQ(got.until, 77U);
  EXPECT_EQ(got.sampling, lease.request.sampling);
  for (const RequestSampling& own :
       {RequestSampling{}, RequestSampling{.max_tokens = 5, .stops = {}},
        RequestSampling{.max_tokens = {}, .stops = StopSet{}},
        RequestSampling{.max_tokens = {}, .stops = {}, .draw = TokenDraw{}, .seed = 0}}) {
    DraftOpen open;
    open.sampling = own;
    EXPECT_EQ(std::get<DraftOpen>(decode(encode(open))).sampling, own);
  }
  for (const bool measured : {true, false}) {
    Costs costs{3, policy::costs_by_position(2, 3)};
    costs.costs.table.decode = CostCurve({{1, 4}, {8, 9}}, {{80, 40}}, 10);
    if (!measured) costs.costs.table.transfer.reset();
    const Message message = decode(encode(costs));
    EXPECT_EQ(std::get<Costs>(message).epoch, 3U);
    const policy::MoveCosts& told = std::get<Costs>(message).costs;
    EXPECT_DOUBLE_EQ(told.table.decode.seconds(8, 10), 9 + 40);
    EXPECT_DOUBLE_EQ(told.table.decode.context(), 10);
    EXPECT_DOUBLE_EQ(told.table.prefill.seconds(5), 10);
    EXPECT_EQ(told.table.transfer_seconds(1), costs.costs.table.transfer_seconds(1));
    EXPECT_EQ(told.position_bytes, 1);
  }
  const std::vector<std::byte> bytes(1, std::byte{99});
  EXPECT_THROW((void)decode(bytes), std::logic_error);
}

}  // namespace
}  // namespace paceline::roles
