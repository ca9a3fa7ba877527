// When freed ranks draft for the last requests, for which, and by what.
#include "runtime/policy/schedule/tail_drafters.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "runtime/policy/plan/speculation_speed.hpp"
#include "runtime/policy/schedule/balancing_scheduler.hpp"
#include "tests/runtime/policy/lease_next.hpp"

namespace paceline::policy {
namespace {

constexpr int kSmall = 0;
constexpr int kMiddle = 1;
constexpr int kLarge = 2;

CostCurve always(double seconds) { return CostCurve({{1, seconds}, {256, seconds}}); }

TailMethod method(int index, double seconds, double acceptance) {
  return {
      index, {fmt::format("model {}", index), always(seconds), always(seconds), {}}, acceptance};
}

/// A step takes 10 ms, and 0.05 ms for each row.
CostTable steps() {
  CostTable table;
  table.decode = CostCurve({{1, 10.05e-3}, {256, 22.8e-3}});
  return table;
}

/// The small model drafts on the verifiers' ranks from the start; a middle one and a large one can
/// on freed ranks.
TailOptions options() {
  TailOptions options;
  options.mode = SpeculationMode::coupled;
  options.first = method(kSmall, 0.4e-3, 0.6);
  options.methods = {method(kMiddle, 0.8e-3, 0.7), method(kLarge, 2.0e-3, 0.8)};
  options.raced = {*options.first, options.methods[0], options.methods[1]};
  return options;
}

TEST(TailSpeed, OfOneDrafterAheadIsThatOfAWindowDraftedInNoTime) {
  const CostTable table = steps();
  TailOptions plain = options();
  plain.mode = SpeculationMode::plain;
  plain.first.reset();
  const TailGroup group{.leader = 0, .steps = &table, .methods = {}};
  EXPECT_DOUBLE_EQ(tail_speed(group, {}, plain), 1 / 10.05e-3);
  for (const double p : {0.3, 0.7, 0.95}) {
    const TailMethod ahead = method(kMiddle, 0.8e-3, p);
    const TailMethod* beside[] = {&ahead};
    const Pace pace = decoupled_pace(p, plain.longest_draft + 1, 0);
    const double seconds = 10e-3 + 0.05e-3 * (1 + pace.ahead * plain.longest_draft);
    EXPECT_NEAR(tail_speed(group, beside, plain), pace.committed / seconds, 1e-9) << p;
  }
  const TailMethod slow = method(kLarge, 11e-3, 0.99);
  const TailMethod* beside[] = {&slow};
  EXPECT_DOUBLE_EQ(tail_speed(group, beside, plain), 1 / 10.05e-3) << "never ahead of a step";
}

TEST(TailSpeed, TheLongestBranchCounts) {
  // Two drafters, each ahead by one token in every step: p = 1/2 of either being right makes 3/4.
  const CostTable table = steps();
  TailOptions plain = options();
  plain.mode = SpeculationMode::plain;
  plain.first.reset();
  plain.longest_draft = 1;
  const TailMethod one = method(kMiddle, 0.8e-3, 0.5);
  const TailMethod other = method(kLarge, 0.8e-3, 0.5);
  const TailMethod* beside[] = {&one, &other};
  const double ahead = 0.5 / (0.5 + 1 - 0.25);
  const double none = (1 - ahead / 2) * (1 - ahead / 2);
  EXPECT_NEAR(tail_speed({.leader = 0, .steps = &table, .methods = {}}, beside, plain),
              (2 - none) / (10e-3 + 0.05e-3 * (1 + 2 * ahead)), 1e-9);
}

TEST(TailDrafts, WorkedExample) {
  const CostTable table = steps();
  const TailOptions with = options();
  const std::vector<TailGroup> groups = {
      {.leader = 0, .steps = &table, .requests = 1, .acceptance = 0.6, .methods = {}},
      {.leader = 4, .steps = &table, .requests = 1, .acceptance = 0.2, .methods = {}},
      {.leader = 8, .steps = &table, .requests = 1, .acceptance = 0.4, .methods = {kMiddle}},
      {.leader = 12, .steps = nullptr, .requests = 1, .acceptance = 0.1, .methods = {}},
  };
  const std::vector<int> freed = {16, 17, 18, 19};
  const std::vector<TailDraft> drafts = assign_tail_drafts(groups, freed, with);
  const auto speed = [&](const TailGroup& group, std::vector<int> has) {
    std::vector<const TailMethod*> beside;
    for (const TailMethod& m : with.methods) {
      if (std::find(has.begin(), has.end(), m.method) != has.end()) beside.push_back(&m);
    }
    return group.steps == nullptr ? 0 : tail_speed(group, beside, with);
  };
  fmt::print("group  accepts  tokens/s: now  + middle  + large  + both  raced  freed ranks\n");
  for (const TailGroup& group : groups) {
    if (group.steps == nullptr) continue;
    double raced = 0;
    for (std::size_t m = 0; m < with.raced.size(); ++m)
      raced = std::max(raced, raced_speed(group, m, with));
    fmt::print("{:>5}  {:>7}  {:>13.1f}  {:>8.1f}  {:>7.1f}  {:>6.1f}  {:>5.1f} ", group.leader,
               group.acceptance, speed(group, group.methods), speed(group, {kMiddle}),
               speed(group, {kLarge}), speed(group, {kMiddle, kLarge}), raced);
    for (const TailDraft& d : drafts) {
      if (d.group == group.leader)
        fmt::print(" {}: {}", d.rank, d.method == kMiddle ? "middle" : "large");
    }
    fmt::print("\n");
  }
  // The least accepted first, with all that it can use, the best before the others, until ranks run
  // out; a group whose costs are not known gets none.
  EXPECT_EQ(drafts, (std::vector<TailDraft>{
                        {16, kLarge, 4}, {17, kMiddle, 4}, {18, kLarge, 8}, {19, kLarge, 0}}));
  for (const TailDraft& d : drafts) {
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const TailGroup& g) { return g.leader == d.group; });
    EXPECT_GT(speed(*group, {kMiddle, kLarge}), speed(*group, group->methods));
  }
}

TEST(TailDrafts, NobodyDraftsWhatDoesNotPay) {
  const CostTable table = steps();
  TailOptions slow = options();
  slow.methods = {method(kMiddle, 20e-3, 0.9)};
  slow.raced = {};
  const std::vector<TailGroup> groups = {
      {.leader = 0, .steps = &table, .acceptance = 0.5, .methods = {}}};
  const std::vector<int> freed = {1, 2};
  EXPECT_TRUE(assign_tail_drafts(groups, freed, slow).empty()) << "slower than steps";
  slow.methods = {method(kMiddle, 1e-3, 0)};
  EXPECT_TRUE(assign_tail_drafts(groups, freed, slow).empty()) << "never agrees";
  EXPECT_TRUE(assign_tail_drafts(groups, {}, options()).empty()) << "nobody is free";
}

TEST(TailDrafts, ARaceIsLeftToThoseThatAreFaster) {
  const CostTable table = steps();
  const TailOptions with = options();
  TailGroup group{.leader = 0, .steps = &table, .acceptance = 0.1, .methods = {}};
  EXPECT_TRUE(race_pays(group, 0, with)) << "nothing is lost where nobody drafts ahead";
  group.methods = {kMiddle, kLarge};
  EXPECT_FALSE(race_pays(group, 0, with));
  TailOptions decoupled = with;
  decoupled.mode = SpeculationMode::decoupled;
  decoupled.methods = {};
  group.methods = {};
  EXPECT_TRUE(race_pays(group, 0, decoupled)) << "its own drafter, by which it is slow";
}

/// Groups of TP 1, 2 and 1 and a spare rank. The first holds one request; the others have run dry.
struct TailPlaces : ::testing::Test {
  TailPlaces() {
    costs.table = steps();
    with.home = placement;
    (void)test::lease_next(table, 0);
    table.drafted({0, 0}, kSmall, 0.4);
    for (int group = 0; group < 3; ++group)
      run.groups.push_back({placement.groups[group], 4, 100, group == 0 ? 1 : 0, &costs});
  }
  static std::vector<Trajectory> work() { return std::vector<Trajectory>(1); }
  [[nodiscard]] std::optional<Placement> next(bool wanted = false) const {
    return tail_placement(run, with, [&](const GroupRanks&) { return wanted; });
  }
  void become(const Placement& next) {
    std::erase_if(run.groups,
                  [&](const GroupState& group) { return next.group(group.ranks.leader) < 0; });
    placement = next;
  }
  MoveCosts costs;
  TailOptions with = options();
  Placement placement{.ranks = 5, .groups = {{0, 1}, {1, 2}, {3, 1}}, .drafters = {}};
  RequestTable table = test::first_come(work());
  std::vector<Prompt> prompts{1};
  RunState run{{}, table, prompts, placement};
};

TEST_F(TailPlaces, SpareRanksComeFirstAndGroupsAreTakenApart) {
  const auto then = next();
  ASSERT_TRUE(then);
  EXPECT_EQ(then->epoch, placement.epoch + 1);
  EXPECT_EQ(then->groups, (std::vector<GroupRanks>{{0, 1}, {1, 2}}));
  ASSERT_EQ(then->drafters.size(), 2U);
  EXPECT_EQ(then->drafters[0].rank, 3) << "the last group";
  EXPECT_EQ(then->drafters[1].rank, 4) << "the spare rank";
  for (const DrafterPlace& drafter : then->drafters) EXPECT_EQ(drafter.group, 0);
  EXPECT_NE(then->drafters[0].method, then->drafters[1].method);
  become(*then);
  EXPECT_FALSE(next()) << "it has all";
}

TEST_F(TailPlaces, ARacingGroupIsTakenLast) {
  placement.ranks = 4;
  with.methods.erase(with.methods.begin());
  table.race_began(table.race({{0, 0}, 3, 1}));
  const auto then = next();
  ASSERT_TRUE(then);
  EXPECT_EQ(then->groups, (std::vector<GroupRanks>{{0, 1}, {3, 1}}));
  EXPECT_EQ(then->role(2), Role::spare) << "of a group of two one rank drafts";
}

TEST_F(TailPlaces, ThoseWhoseRequestsEndedGoBackToVerification) {
  become(*next());
  EXPECT_FALSE(next(true)) << "they have somebody to draft for";
  table.ended({0, 0}, 10);
  const auto then = next(true);
  ASSERT_TRUE(then);
  EXPECT_EQ(then->groups, with.home.groups);
  EXPECT_TRUE(then->drafters.empty());
}

TEST_F(TailPlaces, RanksStayWhatTheyAreWhileRequestsWaitOrRolesChange) {
  run.groups.pop_back();
  EXPECT_FALSE(next()) << "a group is about to end";
  run.groups.push_back({placement.groups[2], 4, 100, 0, &costs});
  table.returned({}, {.key = table.move({0, 0}, kToTable)});
  EXPECT_FALSE(next());
}

TEST_F(TailPlaces, WhatWaitsForRoomBringsGroupsBack) {
  become(*next());
  for (GroupState& group : run.groups) group.room = 0;
  table.returned({}, {.key = table.move({0, 0}, kToTable)});
  const auto then = next();
  ASSERT_TRUE(then);
  EXPECT_EQ(then->groups, with.home.groups);
}

TEST_F(TailPlaces, TheRunsSchedulerAsksForIt) {
  BalancingScheduler scheduler({.rebalance = false, .racing = {3, 8}, .tail = with});
  EXPECT_TRUE(scheduler.moves(run).empty());
  for (const RaceOrder& order : scheduler.races(run))
    EXPECT_NE(order.group, 3) << "it is to be taken apart";
  EXPECT_TRUE(scheduler.placement(run));
  EXPECT_FALSE(scheduler.placement(run)) << "once";
  BalancingScheduler without({.rebalance = false, .racing = {3, 8}});
  EXPECT_TRUE(without.moves(run).empty());
  EXPECT_FALSE(without.races(run).empty());
  EXPECT_FALSE(without.placement(run));
}

}  // namespace
}  // namespace paceline::policy
