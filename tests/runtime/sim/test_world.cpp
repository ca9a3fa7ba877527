// Turns in the order of time, whoever asks for them, and clocks that work moves on.
#include "runtime/sim/world.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/runtime/sim/scripted_actor.hpp"

namespace paceline::sim {
namespace {

using Times = std::vector<double>;

TEST(World, TurnsComeInTheOrderOfTimeAndOfNumbersAtOneTime) {
  World world;
  std::vector<std::pair<double, ActorId>> order;
  const auto note = [&](ScriptedActor& actor) {
    order.emplace_back(actor.now(), actor.id);
    return protocol::Turn{};
  };
  ScriptedActor a(world, 0, note), b(world, 0, note), c(world, 0, note);
  run(world);
  world.wake(c.id, 3);
  world.wake(a.id, 5);
  world.wake(b.id, 3);
  world.wake(a.id, 4);
  run(world);
  const std::vector<std::pair<double, ActorId>> expected{{0, a.id}, {0, b.id}, {0, c.id}, {3, b.id},
                                                         {3, c.id}, {4, a.id}, {5, a.id}};
  EXPECT_EQ(order, expected);
  EXPECT_EQ(world.turns(), 7U);
  EXPECT_EQ(world.now(), 5);
  EXPECT_FALSE(world.step());
}

TEST(World, ALaterWakeIsNotLostToAnEarlierOneAndOneTimeIsOneTurn) {
  World world;
  ScriptedActor actor(world);
  world.wake(actor.id, 7);
  world.wake(actor.id, 2);
  world.wake(actor.id, 7);
  run(world);
  EXPECT_EQ(actor.turns, Times({0, 2, 7}));
}

TEST(World, WhoWorkedGetsTheNextTurnWhenTheWorkIsDone) {
  World world;
  int left = 3;
  ScriptedActor actor(world, 0, [&](ScriptedActor& me) {
    if (left-- == 0) return protocol::Turn{};
    world.work(me.id, 1.5);
    return protocol::Turn{true};
  });
  run(world);
  EXPECT_EQ(actor.turns, Times({0, 1.5, 3, 4.5}));
}

TEST(World, WhoAsksForATimeGetsATurnThen) {
  World world;
  ScriptedActor actor(world, 0, [](ScriptedActor& me) {
    return protocol::Turn{false, me.turns.size() < 3 ? me.now() + 2 : 1e300};
  });
  for (int turn = 0; turn < 3; ++turn) EXPECT_TRUE(world.step());
  EXPECT_EQ(actor.turns, Times({0, 2, 4}));
}

// Its clock is at the end of its work: a turn before the others have come that far would not see
// what they say meanwhile.
TEST(World, WhoeverWorksGetsNoTurnBeforeItIsDone) {
  World world;
  ScriptedActor busy(world, 0, [&](ScriptedActor& me) {
    if (me.turns.size() == 2) world.work(me.id, 5);  // from 1 to 6
    return protocol::Turn{};
  });
  std::vector<std::size_t> turns_of_busy;
  ScriptedActor other(world, 0, [&](ScriptedActor&) {
    turns_of_busy.push_back(busy.turns.size());
    return protocol::Turn{};
  });
  world.wake(busy.id, 1);
  world.wake(busy.id, 3);  // known before the work began
  world.wake(other.id, 4);
  world.wake(other.id, 7);
  run(world);
  EXPECT_EQ(busy.turns, Times({0, 1, 6}));
  EXPECT_EQ(turns_of_busy, (std::vector<std::size_t>{1, 2, 3}));
}

TEST(World, AnActorThatIsOverGetsNoTurn) {
  World world;
  ScriptedActor actor(world, 0, [&](ScriptedActor& me) {
    me.ended = me.turns.size() == 2;
    return protocol::Turn{true};
  });
  world.wake(actor.id, 9);
  run(world);
  EXPECT_EQ(actor.turns.size(), 2U);
  EXPECT_EQ(world.turns(), 2U);
}

/// Seconds that an actor's work of 1 s takes while `others` of its host are at work of 10 s.
double seconds_beside(int others, int cores) {
  World world;
  std::vector<std::unique_ptr<ScriptedActor>> actors;
  for (int i = 0; i < others; ++i) actors.push_back(std::make_unique<ScriptedActor>(world, 0));
  ScriptedActor elsewhere(world, 1), me(world, 0);
  world.set_cores(0, cores);
  world.set_cores(1, cores);
  run(world);
  for (const auto& actor : actors) world.work(actor->id, 10);
  world.work(elsewhere.id, 10);
  world.work(me.id, 1);
  return me.now();
}

TEST(World, WorkOnAHostSharesItsCores) {
  EXPECT_EQ(seconds_beside(0, 1), 1);
  EXPECT_EQ(seconds_beside(1, 1), 2);
  EXPECT_EQ(seconds_beside(3, 1), 4);
  EXPECT_EQ(seconds_beside(3, 2), 2);
  EXPECT_EQ(seconds_beside(3, 4), 1);
  EXPECT_EQ(seconds_beside(3, 8), 1);
  EXPECT_EQ(seconds_beside(3, 0), 1) << "there are enough";
}

TEST(World, WorkThatHasEndedTakesNoCores) {
  World world;
  ScriptedActor first(world, 0), second(world, 0);
  world.set_cores(0, 1);
  run(world);
  world.work(first.id, 2);
  world.wake(second.id, 2);
  run(world);
  world.work(second.id, 1);
  EXPECT_EQ(second.now(), 3);
}

TEST(World, ASlowActorsWorkTakesLongerFromThenOn) {
  World world;
  ScriptedActor actor(world);
  world.slow(actor.id, 3, 1);
  run(world);
  world.work(actor.id, 1);  // from 0
  world.work(actor.id, 1);  // from 1
  EXPECT_EQ(actor.now(), 4);
}

TEST(World, AStalledActorTakesNoTurnAndMissesNone) {
  World world;
  ScriptedActor actor(world);
  world.stall(actor.id, 1, 2);
  for (const double at : {0.5, 1.0, 1.5, 2.5, 3.5}) world.wake(actor.id, at);
  run(world);
  EXPECT_EQ(actor.turns, Times({0, 0.5, 3, 3.5}));
}

TEST(World, AStallThatWorkReachesIntoHoldsTheNextTurn) {
  World world;
  ScriptedActor actor(world, 0, [&](ScriptedActor& me) {
    if (me.turns.size() > 1) return protocol::Turn{};
    world.work(me.id, 1.5);
    return protocol::Turn{true};
  });
  world.stall(actor.id, 1, 2);
  world.wake(actor.id, 0.5);
  run(world);
  EXPECT_EQ(actor.turns, Times({0, 3}));
}

}  // namespace
}  // namespace paceline::sim
