#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/policy/schedule/move_split.hpp"

namespace paceline::policy {
namespace {

/// Seconds until all KV is there, if all from `first` on is sent.
double seconds(const MoveCosts& costs, int positions, int own_from, int first) {
  const int sent = std::max(0, positions - first);
  return std::max(costs.table.recompute_seconds(std::min(first, positions) - own_from, own_from),
                  sent > 0 ? *costs.table.transfer_seconds(sent * costs.position_bytes) : 0.0);
}

/// `context`: seconds that a row costs more for each position that it attends to.
MoveCosts measured(double context, double latency, double bandwidth) {
  MoveCosts costs;
  costs.table.prefill = CostCurve({{16, 4e-3}, {64, 9e-3}, {256, 30e-3}}, context);
  costs.table.transfer = TransferCosts{latency, bandwidth};
  costs.position_bytes = 3000;
  return costs;
}

TEST(MoveSplit, IsTheBestOfAllSplits) {
  for (const MoveCosts& costs :
       {costs_by_position(1, 1), costs_by_position(1, 0.1), costs_by_position(0.1, 1),
        costs_by_position(1, 1e9), costs_by_position(1e6, 1), measured(0, 0, 1e9),
        measured(2e-7, 1e-4, 3e7), measured(2e-7, 0.05, 3e7), measured(2e-7, 1, 1e6),
        measured(1e-6, 1e-3, 2e7)}) {
    for (const int positions : {1, 15, 16, 17, 100, 1000, 4000}) {
      for (const int own_from : {0, 16, 64}) {
        const MoveSplit split = split_move(costs, positions, own_from, 16);
        EXPECT_GE(split.first, own_from);
        EXPECT_EQ(split.first % 16, 0);
        EXPECT_DOUBLE_EQ(split.seconds, seconds(costs, positions, own_from, split.first));
        for (int other = own_from; other < positions + 16; other += 16) {
          EXPECT_LE(split.seconds, seconds(costs, positions, own_from, other))
              << positions << " " << own_from << " " << other;
        }
      }
    }
  }
}

TEST(MoveSplit, BothAreDoneTogether) {
  // 1 s a position computed, 3 s sent: of 160 positions 120 and 40, but for the block.
  const MoveSplit split = split_move(costs_by_position(1, 3), 160, 0, 16);
  EXPECT_EQ(split.first, 128);
  EXPECT_DOUBLE_EQ(split.seconds, 128);  // from 112 on it would take 144 s
}

TEST(MoveSplit, LongContextsComputeLess) {
  // The head is as long, but each of its rows attends to more: less of it is worth computing.
  const MoveCosts costs = measured(1e-6, 1e-3, 2e7);
  const std::int32_t at_front = split_move(costs, 2048, 0, 16).first;
  const std::int32_t behind = split_move(costs, 4096, 2048, 16).first - 2048;
  EXPECT_GT(at_front, behind);
  EXPECT_GT(behind, 0);
}

TEST(MoveSplit, AllIsSentWhereNobodyKnowsWhatEitherCosts) {
  EXPECT_EQ(split_move({}, 100, 32, 16).first, 32);
  MoveCosts costs = costs_by_position(1, 1000);
  costs.table.transfer.reset();
  EXPECT_EQ(split_move(costs, 100, 32, 16).first, 32);
  costs = costs_by_position(1, 1000);
  costs.table.prefill = {};
  EXPECT_EQ(split_move(costs, 100, 32, 16).first, 32);
}

}  // namespace
}  // namespace paceline::policy
