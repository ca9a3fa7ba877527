// Any interleaving of the roles must generate every response once, and the same responses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "tests/runtime/roles/world.hpp"

namespace paceline::roles {
namespace {

using namespace test;

TEST(Roles, AnyNumberOfGroupsInAnyOrderGeneratesTheSame) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  EXPECT_TRUE(reference.complete);
  EXPECT_EQ(reference.finished.size(), 28U);
  for (const int groups : {1, 2, 3, 5}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      const Outcome outcome = simulate(groups, seed, empty_responses(7, 4), 0);
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
    }
  }
}

TEST(Roles, RequestsThatMoveGenerateTheSame) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const Moves& moves : all_moves()) {
    std::size_t made = 0;
    int transfers = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Outcome outcome =
          simulate(2 + static_cast<int>(seed % 3), seed, empty_responses(7, 4), 0, -1, moves);
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      made += outcome.moves;
      transfers += outcome.transfers;
    }
    EXPECT_GT(made, moves.shuffle ? 200U : 10U);
    const bool sends = policy::split_move(moves.costs, 64, 0, 16).first < 64;
    EXPECT_EQ(transfers > 0, sends) << transfers;
  }
}

TEST(Roles, LeasesByChunkChangeNothing) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::size_t transfers = 0;
  std::size_t restored = 0;
  for (const std::int32_t chunk : {1, 2, 8, 13, 40}) {
    for (const std::int32_t blocks : {9, 14, 70}) {
      for (unsigned seed = 0; seed < 12; ++seed) {
        Moves moves{.shuffle = seed % 2 == 1,
                    .rebalance = seed % 3 == 0,
                    .costs = {},
                    .growth = seed % 4 == 3 ? 7 : 0,
                    .kv_blocks = blocks,
                    .shuffle_roles = seed % 4 == 1};
        moves.shuffle_races = seed % 6 == 4;
        moves.chunk = chunk;
        SCOPED_TRACE(fmt::format("chunk {}, {} blocks, seed {}", chunk, blocks, seed));
        const Outcome outcome =
            simulate(1 + static_cast<int>(seed % 3), seed, empty_responses(7, 4), 0, -1, moves,
                     {seed % 5 == 0 ? 1 : 0, 3, &reference.finished, 0.9});
        EXPECT_TRUE(outcome.complete);
        expect_same(reference.finished, outcome.finished);
        transfers += outcome.transfers;
        restored += outcome.restored;
      }
    }
  }
  EXPECT_GT(transfers, 200U);
  EXPECT_GT(restored, 200U);
}

// KV pools grow and shrink at random while requests and their KV come and go, are stored and raced
// for, and drafters are suspended.
TEST(Roles, MemoryThatGoesToAndFroChangesNothing) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::map<DraftMemoryRecord::Kind, int> kinds;
  std::uint64_t moved = 0;
  for (const std::int32_t blocks : {9, 14, 30}) {
    for (const std::int32_t gain : {3, 20}) {
      for (unsigned seed = 0; seed < 24; ++seed) {
        Moves moves{.shuffle = seed % 2 == 1,
                    .rebalance = seed % 3 == 0,
                    .costs = policy::costs_by_position(1, 1),
                    .growth = seed % 4 == 3 ? 7 : 0,
                    .kv_blocks = blocks,
                    .shuffle_roles = seed % 4 == 1};
        moves.shuffle_races = seed % 6 == 4;
        moves.chunk = seed % 5 == 0 ? 13 : 0;
        moves.gain = gain;
        SCOPED_TRACE(fmt::format("{} blocks, {} more, seed {}", blocks, gain, seed));
        const Outcome outcome =
            simulate(2 + static_cast<int>(seed % 2), seed, empty_responses(7, 4), 0, -1, moves,
                     {seed % 5 == 1 ? 1 : 0, 3, &reference.finished, 0.9});
        EXPECT_TRUE(outcome.complete);
        expect_same(reference.finished, outcome.finished);
        for (const DraftMemoryRecord& change : outcome.changes) {
          ++kinds[change.kind];
          moved += change.moved;
          const bool grown = change.kind == DraftMemoryRecord::Kind::expanded;
          EXPECT_EQ(change.blocks, static_cast<std::uint32_t>(blocks + (grown ? gain : 0)));
        }
      }
    }
  }
  EXPECT_GT(kinds[DraftMemoryRecord::Kind::expanded], 500);
  EXPECT_GT(kinds[DraftMemoryRecord::Kind::contracted], 300);
  EXPECT_GT(kinds[DraftMemoryRecord::Kind::resumed], 200);
  EXPECT_GT(moved, 500U);
}

TEST(Roles, GroupsDoNotWaitForRoomThatEachOthersKvTakes) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const std::int32_t blocks : {9, 12}) {
    for (const std::int32_t growth : {0, 7}) {
      for (unsigned seed = 0; seed < 10; ++seed) {
        const Outcome outcome =
            simulate(2 + static_cast<int>(seed % 2), seed, empty_responses(7, 4), 0, -1,
                     {.shuffle = true, .costs = {}, .growth = growth, .kv_blocks = blocks});
        EXPECT_TRUE(outcome.complete);
        expect_same(reference.finished, outcome.finished);
      }
    }
  }
}

TEST(Roles, StoppedAnywhereAndResumedItIsTheSame) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::vector<std::pair<int, Moves>> cases;
  for (const int stop : {0, 3, 50, 200, 400}) {
    cases.emplace_back(stop, Moves{});
    for (const Moves& moves : all_moves()) cases.emplace_back(stop, moves);
  }
  for (const auto& [stop, moves] : cases) {
    Outcome first = simulate(3, 9, empty_responses(7, 4), 0, stop, moves);
    std::map<RequestId, Trajectory> partial;
    for (Trajectory& t : first.partial) {
      const RequestId id = t.id;
      EXPECT_TRUE(partial.emplace(id, std::move(t)).second);
    }
    std::vector<Trajectory> rest;
    for (const Trajectory& t : empty_responses(7, 4)) {
      if (first.finished.count(t.id) != 0) continue;
      const auto it = partial.find(t.id);
      rest.push_back(it != partial.end() ? it->second : t);
    }
    if (rest.empty()) {
      EXPECT_TRUE(first.complete);
      continue;
    }
    EXPECT_FALSE(first.complete);
    Outcome second = simulate(2, 4, rest, first.finished.size());
    EXPECT_TRUE(second.complete);
    second.finished.merge(first.finished);
    expect_same(reference.finished, second.finished);
  }
}

TEST(Roles, DrafterRanksChangeNothingAndWasteNoMoreThanTheWindowAllows) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (int window = 1; window <= 8; ++window) {
    for (const double accuracy : {0.0, 0.6, 0.95, 1.0}) {
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
        for (const RankSummary& drafter : outcome.drafters) {
          EXPECT_LE(drafter.most_wasted, 2 * static_cast<std::uint32_t>(window) - 1);
          EXPECT_GE(drafter.drafted, drafter.accepted + drafter.wasted);
          accepted += drafter.accepted;
        }
        tally.tried += outcome.tally.tried;
        tally.accepted += outcome.tally.accepted;
      }
      // Of what was judged as much was right as of all that the drafters would say.
      double right = 0;
      double said = 0;
      for (const auto& [id, t] : reference.finished) {
        said += static_cast<double>(t.tokens.size());
        for (std::size_t at = 0; at < t.tokens.size(); ++at)
          right += OracleDrafter::right(id, at, accuracy) ? 1 : 0;
      }
      EXPECT_EQ(tally.accepted, accepted);
      EXPECT_GT(tally.tried, 500U);
      EXPECT_NEAR(static_cast<double>(tally.accepted) / static_cast<double>(tally.tried),
                  right / said, 0.02);
      if (accuracy == 0) {
        EXPECT_EQ(accepted, 0U);
      } else {
        EXPECT_GT(accepted, 500U);
      }
    }
  }
}

// Each row that arrives is that of its position, whatever moves and whoever drafts; and there are
// drafts.
TEST(Roles, WhatTheTargetComputesReachesDrafterRanks) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (unsigned seed = 0; seed < 24; ++seed) {
    const int groups = 1 + static_cast<int>(seed % 3);
    const auto how = seed < 12 ? Misbehaviour::none
                               : std::vector{Misbehaviour::stall, Misbehaviour::flood,
                                             Misbehaviour::garbage}[seed / 4 % 3];
    const Moves moves{.shuffle = seed % 2 == 1,
                      .costs = policy::costs_by_position(1, 1),
                      .chunk = seed % 4 == 2 ? 8 : 0};
    DrafterRanks ahead{1 + static_cast<int>(seed / 2 % 2), 4, &reference.finished, 0.9, how};
    ahead.features = true;
    ahead.reconfigure = seed % 6 == 5 ? 10 : 0;
    const Outcome outcome = simulate(groups, seed, empty_responses(7, 4), 0, -1, moves, ahead);
    EXPECT_TRUE(outcome.complete);
    expect_same(reference.finished, outcome.finished);
    std::uint64_t accepted = 0;
    for (const RankSummary& drafter : outcome.drafters) {
      accepted += drafter.accepted;
      EXPECT_EQ(drafter.invalid, 0U);
    }
    EXPECT_GT(accepted, how == Misbehaviour::none ? 50U : 0U) << seed;
  }
}

TEST(Roles, RanksThatChangeRolesReadWhatTheyAreSent) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (unsigned seed = 0; seed < 12; ++seed) {
    Moves moves{
        .shuffle = seed % 2 == 1, .rebalance = true, .costs = policy::costs_by_position(1, 1)};
    moves.shuffle_roles = true;
    moves.degrees = {2, 1};
    DrafterRanks ahead{2, 4, &reference.finished, 0.9,
                       seed % 3 == 2 ? Misbehaviour::garbage : Misbehaviour::none};
    ahead.features = true;
    const Outcome outcome = simulate(2, seed, empty_responses(7, 4), 0, -1, moves, ahead);
    EXPECT_TRUE(outcome.complete);
    expect_same(reference.finished, outcome.finished);
  }
}

TEST(Roles, ReconfigurationChangesNothing) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::map<SpeculationMode, int> modes;
  std::set<std::uint32_t> windows;
  std::uint64_t accepted = 0;
  for (const std::uint32_t every : {1U, 16U, 49U}) {
    for (const int window : {1, 2, 5, 8}) {
      for (unsigned seed = 0; seed < 12; ++seed) {
        const int groups = 1 + static_cast<int>(seed % 3);
        const Moves moves{.shuffle = seed % 2 == 1,
                          .costs = policy::costs_by_position(1, 1),
                          .shuffle_roles = seed % 4 == 2};
        DrafterRanks drafters{1 + static_cast<int>(seed / 2 % 2), window, &reference.finished};
        drafters.accuracy = seed % 5 == 0 ? 0.1 : 0.85;
        drafters.reconfigure = every;
        const Outcome outcome =
            simulate(groups, seed, empty_responses(7, 4), 0, -1, moves, drafters);
        EXPECT_TRUE(outcome.complete);
        expect_same(reference.finished, outcome.finished);
        for (const RequestEvent& plan : outcome.plans) {
          EXPECT_LE(plan.window, static_cast<std::uint32_t>(window));
          EXPECT_EQ(plan.window == 0, plan.mode == SpeculationMode::plain);
          ++modes[plan.mode];
          windows.insert(plan.window);
        }
        for (const RankSummary& drafter : outcome.drafters) {
          EXPECT_LE(drafter.most_wasted, 2 * static_cast<std::uint32_t>(window) - 1);
          accepted += drafter.accepted;
        }
      }
    }
  }
  for (const auto& [mode, plans] : modes) fmt::print("{}: {} requests\n", name_of(mode), plans);
  EXPECT_EQ(modes.size(), 3U);
  EXPECT_GT(windows.size(), 4U);
  EXPECT_GT(accepted, 1000U);
}

/// Runs in which groups race, of several layouts and beside all else that can happen.
std::vector<std::pair<Moves, int>> races() {  // with the number of drafter ranks
  std::vector<std::pair<Moves, int>> all;
  for (int number = 0; number < 32; ++number) {
    Moves moves{.shuffle = (number & 1) != 0,
                .rebalance = (number & 4) != 0,
                .costs = policy::costs_by_position(1, 1),
                .growth = (number & 4) != 0 ? 7 : 0,
                .kv_blocks = (number & 4) != 0 ? 14 : 70};
    moves.shuffle_roles = (number & 8) != 0;
    moves.best_of_n = (number & 16) != 0;
    moves.shuffle_races = !moves.best_of_n;
    moves.degrees = {1, 2, 1};
    all.emplace_back(moves, (number & 2) != 0 ? 1 : 0);
  }
  return all;
}

TEST(Roles, RacesChangeNothing) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::size_t of_their_own = 0;  // races for the last requests
  for (const auto& [moves, drafters] : races()) {
    Outcome sum;
    for (unsigned seed = 0; seed < 12; ++seed) {
      const Outcome outcome =
          simulate(3, seed, empty_responses(7, 4), 0, -1, moves,
                   {drafters, 1 + static_cast<int>(seed % 5), &reference.finished, 0.9});
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      sum.races += outcome.races;
      sum.raced += outcome.raced;
      sum.foretold += outcome.foretold;
      sum.steps += outcome.steps;
    }
    fmt::print(
        "{}{}{}{}, {} drafter ranks: {} races, {} tokens by racers, {} of them first, {} steps\n",
        moves.best_of_n ? "best of n" : "by chance", moves.shuffle ? ", moves" : "",
        moves.growth > 0 ? ", parking" : "", moves.shuffle_roles ? ", roles" : "", drafters,
        sum.races, sum.raced, sum.foretold, sum.steps);
    if (moves.best_of_n) {
      of_their_own += sum.races;
      continue;
    }
    EXPECT_GT(sum.races, 200U);
    EXPECT_GT(sum.raced, 200U);
    EXPECT_GT(sum.foretold, 50U);
  }
  EXPECT_GT(of_their_own, 100U);
}

TEST(Roles, AStopWhileGroupsRaceLosesNothing) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const auto& [moves, drafters] : races()) {
    for (int stop = 5; stop < 700; stop += 97) {
      const Outcome outcome = simulate(3, static_cast<unsigned>(stop), empty_responses(7, 4), 0,
                                       stop, moves, {drafters, 3, &reference.finished, 0.9});
      for (const auto& [id, t] : outcome.finished)
        EXPECT_EQ(t.tokens, reference.finished.at(id).tokens);
      std::set<RequestId> partial;
      for (const Trajectory& t : outcome.partial) {
        EXPECT_TRUE(partial.insert(t.id).second) << "handed in twice";
        const std::vector<TokenId>& whole = reference.finished.at(t.id).tokens;
        ASSERT_LE(t.tokens.size(), whole.size());
        EXPECT_TRUE(std::equal(t.tokens.begin(), t.tokens.end(), whole.begin()));
      }
    }
  }
}

TEST(Roles, AStopWithDrafterRanksLosesNothing) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const int stop : {1, 30, 100, 300}) {
    const Outcome outcome =
        simulate(2, 3, empty_responses(7, 4), 0, stop, {.shuffle = true, .costs = {}},
                 {2, 3, &reference.finished, 0.9});
    for (const auto& [id, t] : outcome.finished)
      EXPECT_EQ(t.tokens, reference.finished.at(id).tokens);
    for (const Trajectory& t : outcome.partial) {
      const std::vector<TokenId>& whole = reference.finished.at(t.id).tokens;
      ASSERT_LE(t.tokens.size(), whole.size());
      EXPECT_TRUE(std::equal(t.tokens.begin(), t.tokens.end(), whole.begin()));
    }
  }
}

/// Runs in which ranks change roles, of several layouts.
std::vector<std::pair<Moves, int>> role_changes() {  // with the number of drafter ranks
  std::vector<std::pair<Moves, int>> all;
  for (const std::vector<int>& degrees :
       std::vector<std::vector<int>>{{1, 1, 1}, {2, 1}, {2, 2}, {4, 2, 1}}) {
    for (const bool shuffle : {false, true}) {
      Moves moves{.shuffle = shuffle, .rebalance = true, .costs = policy::costs_by_position(1, 1)};
      moves.shuffle_roles = true;
      moves.degrees = degrees;
      all.emplace_back(moves, shuffle ? 1 : 0);
      all.emplace_back(moves, 2);
    }
  }
  return all;
}

TEST(Roles, RanksThatChangeRolesGenerateTheSame) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const auto& [moves, drafters] : role_changes()) {
    std::size_t placements = 0;
    std::uint64_t accepted = 0;
    for (unsigned seed = 0; seed < 25; ++seed) {
      const Outcome outcome =
          simulate(static_cast<int>(moves.degrees.size()), seed, empty_responses(7, 4), 0, -1,
                   moves, {drafters, 1 + static_cast<int>(seed % 5), &reference.finished, 0.9});
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      placements += outcome.placements;
      for (const RankSummary& drafter : outcome.drafters) accepted += drafter.accepted;
    }
    EXPECT_GT(placements, 60U);
    EXPECT_EQ(drafters > 0, accepted > 100U) << accepted;
  }
}

TEST(Roles, AStopWhileRolesChangeLosesNothing) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const auto& [moves, drafters] : role_changes()) {
    for (int stop = 0; stop < 600; stop += 23) {
      const Outcome outcome =
          simulate(static_cast<int>(moves.degrees.size()), static_cast<unsigned>(stop),
                   empty_responses(7, 4), 0, stop, moves, {drafters, 3, &reference.finished, 0.9});
      for (const auto& [id, t] : outcome.finished)
        EXPECT_EQ(t.tokens, reference.finished.at(id).tokens);
      for (const Trajectory& t : outcome.partial) {
        const std::vector<TokenId>& whole = reference.finished.at(t.id).tokens;
        ASSERT_LE(t.tokens.size(), whole.size());
        EXPECT_TRUE(std::equal(t.tokens.begin(), t.tokens.end(), whole.begin()));
      }
    }
  }
}

bool says(const Outcome& outcome, const std::string& what) {
  return std::any_of(outcome.warnings.begin(), outcome.warnings.end(),
                     [&](const std::string& text) { return text.find(what) != text.npos; });
}

TEST(Roles, DraftersThatMisbehaveChangeNothingAndAreTold) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  std::size_t stalls = 0;
  for (const auto how : {Misbehaviour::stall, Misbehaviour::flood, Misbehaviour::garbage}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      const int groups = 1 + static_cast<int>(seed % 2);
      const Moves moves{.shuffle = seed % 3 == 1, .costs = policy::costs_by_position(1, 1)};
      const Outcome outcome =
          simulate(groups, seed, empty_responses(7, 4), 0, -1, moves,
                   {1 + static_cast<int>(seed / 3), 4, &reference.finished, 0.8, how});
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      EXPECT_LE(outcome.most_held, SimulatedMailbox::kRoom + 1000) << "memory has no bound";
      EXPECT_LT(outcome.warnings.size(), 40U);
      if (how == Misbehaviour::stall && says(outcome, "has said nothing for")) ++stalls;
      if (how == Misbehaviour::flood) {
        EXPECT_TRUE(says(outcome, " floods"));
        EXPECT_GT(outcome.remote.flooded, 1000U);
      }
      if (how == Misbehaviour::garbage) {
        EXPECT_TRUE(says(outcome, "that is dropped"));
        EXPECT_TRUE(says(outcome, " in all: "));
        EXPECT_GT(outcome.remote.invalid, 100U);
      }
    }
  }
  EXPECT_GE(stalls, 4U);
}

TEST(Roles, DraftersThatMisbehaveMayChangeRoles) {
  const Outcome reference = simulate(1, 1, empty_responses(7, 4), 0);
  for (const auto how : {Misbehaviour::stall, Misbehaviour::garbage}) {
    for (unsigned seed = 0; seed < 12; ++seed) {
      Moves moves{
          .shuffle = seed % 3 == 1, .rebalance = true, .costs = policy::costs_by_position(1, 1)};
      moves.shuffle_roles = true;
      moves.degrees = {2, 1};
      const Outcome outcome = simulate(2, seed, empty_responses(7, 4), 0, -1, moves,
                                       {2, 4, &reference.finished, 0.8, how});
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
    }
  }
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
                              .weight_version = 9};
  lease.request.prompt = {10, 11, 12};
  lease.request.noise = {123, 456};
  lease.request.until = 77;
  lease.request.sampling = {.max_tokens = 40, .stops = StopSet{{7, 8}, {"a", "\n\n"}}};
  const Message decoded = decode(encode(lease));
  const Admission& got = std::get<Lease>(decoded).request;
  EXPECT_EQ(got.trajectory.id, lease.request.trajectory.id);
  EXPECT_EQ(got.trajectory.logprob, lease.request.trajectory.logprob);
  EXPECT_EQ(got.trajectory.kept, lease.request.trajectory.kept);
  EXPECT_EQ(got.trajectory.kept_ids, lease.request.trajectory.kept_ids);
  EXPECT_EQ(got.trajectory.weight_version, 9U);
  EXPECT_EQ(got.prompt, lease.request.prompt);
  EXPECT_EQ(got.noise, lease.request.noise);
  EXPECT_EQ(got.until, 77U);
  EXPECT_EQ(got.sampling, lease.request.sampling);
  for (const RequestSampling& own :
       {RequestSampling{}, RequestSampling{.max_tokens = 5, .stops = {}},
        RequestSampling{.max_tokens = {}, .stops = StopSet{}}}) {
    DraftOpen open;
    open.sampling = own;
    EXPECT_EQ(std::get<DraftOpen>(decode(encode(open))).sampling, own);
  }
  for (const bool measured : {true, false}) {
    Costs costs{3, policy::costs_by_position(2, 3)};
    costs.costs.table.decode = CostCurve({{1, 4}, {8, 9}}, 0.5);
    if (!measured) costs.costs.table.transfer.reset();
    const Message message = decode(encode(costs));
    EXPECT_EQ(std::get<Costs>(message).epoch, 3U);
    const policy::MoveCosts& told = std::get<Costs>(message).costs;
    EXPECT_DOUBLE_EQ(told.table.decode.seconds(8, 10), 9 + 40);
    EXPECT_DOUBLE_EQ(told.table.prefill.seconds(5), 10);
    EXPECT_EQ(told.table.transfer_seconds(1), costs.costs.table.transfer_seconds(1));
    EXPECT_EQ(told.position_bytes, 1);
  }
  const std::vector<std::byte> bytes(1, std::byte{99});
  EXPECT_THROW((void)decode(bytes), std::logic_error);
}

}  // namespace
}  // namespace paceline::roles
