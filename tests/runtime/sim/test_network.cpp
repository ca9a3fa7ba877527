// What is sent takes the latency and bandwidth of its link, and waits for what goes before it.
#include "runtime/sim/network.hpp"

#include <gtest/gtest.h>

namespace paceline::sim {
namespace {

constexpr auto kMessage = Network::Kind::message;
constexpr auto kBlocks = Network::Kind::blocks;

/// Of easy numbers: seconds, and bytes a second.
Links links() { return {.rank = {1, 1000}, .node = {2, 100}, .network = {4, 10}}; }

/// Ranks 0 and 1 are of one node, 2 and 3 of another.
Network network() { return {links(), {0, 0, 1, 1}}; }

TEST(Network, LinksAreOfARankANodeOrBetweenNodes) {
  EXPECT_EQ(network().arrival(0, 0, 1000, 10, kMessage), 10 + 1 + 1);
  EXPECT_EQ(network().arrival(0, 1, 1000, 10, kMessage), 10 + 2 + 10);
  EXPECT_EQ(network().arrival(0, 2, 1000, 10, kMessage), 10 + 4 + 100);
  EXPECT_EQ(network().arrival(3, 2, 1000, 10, kMessage), 10 + 2 + 10);
  EXPECT_EQ(network().arrival(2, 0, 0, 10, kMessage), 10 + 4) << "latency alone";
}

TEST(Network, WhatARankSendsGoesOneAfterTheOther) {
  Network n = network();
  EXPECT_EQ(n.arrival(0, 2, 100, 0, kMessage), 14);
  EXPECT_EQ(n.arrival(0, 3, 100, 0, kMessage), 24) << "to whomever";
  EXPECT_EQ(n.arrival(0, 3, 100, 50, kMessage), 64) << "the link is free again";
}

TEST(Network, WhatARankReceivesComesOneAfterTheOther) {
  Network n = network();
  EXPECT_EQ(n.arrival(0, 2, 100, 0, kMessage), 14);
  EXPECT_EQ(n.arrival(1, 2, 100, 0, kMessage), 24);
  EXPECT_EQ(n.arrival(1, 3, 100, 0, kMessage), 14) << "who waits for one sends to others";
}

TEST(Network, DirectionsAndClassesOfLinksDoNotHoldOneAnotherUp) {
  Network n = network();
  EXPECT_EQ(n.arrival(0, 2, 100, 0, kMessage), 14);
  EXPECT_EQ(n.arrival(2, 0, 100, 0, kMessage), 14) << "the other direction";
  EXPECT_EQ(n.arrival(0, 1, 100, 0, kMessage), 3) << "within the node";
  EXPECT_EQ(n.arrival(0, 0, 1000, 0, kMessage), 2) << "within the rank";
}

// Clocks of ranks are apart: a rank in a long step says now what it sends at its end.
TEST(Network, WhatIsSentEarlierGoesFirstWhereThereIsTime) {
  Network n = network();
  EXPECT_EQ(n.arrival(0, 2, 100, 50, kMessage), 64);
  EXPECT_EQ(n.arrival(1, 2, 100, 0, kMessage), 14);
  EXPECT_EQ(n.arrival(1, 2, 300, 20, kMessage), 54) << "it just fits";
  EXPECT_EQ(n.arrival(1, 3, 100, 55, kMessage), 69);
  EXPECT_EQ(n.arrival(3, 0, 100, 0, kMessage), 14) << "of others' ports nothing is taken";
  EXPECT_EQ(n.arrival(1, 2, 101, 10, kMessage), 79.1) << "neither before nor between the others";
}

TEST(Network, MessagesAreNotHeldUpByBlocks) {
  Network n = network();
  EXPECT_EQ(n.arrival(0, 2, 1000, 0, kBlocks), 104);
  EXPECT_EQ(n.arrival(0, 2, 100, 0, kMessage), 14);
  EXPECT_EQ(n.arrival(0, 2, 10, 0, kBlocks), 105) << "but blocks by blocks";
}

}  // namespace
}  // namespace paceline::sim
