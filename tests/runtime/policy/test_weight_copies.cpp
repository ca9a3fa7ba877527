#include "runtime/policy/place/weight_copies.hpp"

#include <gtest/gtest.h>

namespace paceline::policy {
namespace {

const WeightsId kTarget{};
const WeightsId kHalves[] = {{{}, 2, 0}, {{}, 2, 1}};
const WeightsId kDraft{0};

/// Ranks of two nodes of two NUMA nodes, two ranks on each.
std::vector<WeightHolder> eight(bool shares) {
  std::vector<WeightHolder> holders(8);
  for (int rank = 0; rank < 8; ++rank)
    holders[rank] = {rank / 4, std::uint64_t{1} << rank / 2 % 2, shares, {kTarget}};
  return holders;
}

std::vector<std::vector<int>> ranks_of(const std::vector<WeightCopy>& copies, const WeightsId& id) {
  std::vector<std::vector<int>> ranks;
  for (const WeightCopy& copy : copies) {
    if (copy.id == id) ranks.push_back(copy.ranks);
  }
  return ranks;
}

using Ranks = std::vector<std::vector<int>>;

TEST(WeightCopies, OneForRanksThatHaveTheSameMemoryNear) {
  EXPECT_EQ(ranks_of(weight_copies(eight(true)), kTarget), (Ranks{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(least_sharers(eight(true)), 2);
  std::vector<WeightHolder> anywhere = eight(true);  // not bound to cores
  for (WeightHolder& holder : anywhere) holder.numa_nodes = 3;
  EXPECT_EQ(ranks_of(weight_copies(anywhere), kTarget), (Ranks{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(least_sharers(anywhere), 4);
}

TEST(WeightCopies, OneEachWhereMemoryCannotBeMapped) {
  EXPECT_EQ(weight_copies(eight(false)).size(), 8U);
  EXPECT_EQ(least_sharers(eight(false)), 1);
}

TEST(WeightCopies, OfEachShareAndModelThatAnyNeeds) {
  std::vector<WeightHolder> holders = eight(true);
  for (int rank = 0; rank < 8; ++rank) {
    holders[rank].numa_nodes = 3;
    holders[rank].weights = {kHalves[rank % 2]};
  }
  holders[3].weights = {kDraft};
  holders[7].weights = {};
  holders[6].weights.push_back(kDraft);
  const std::vector<WeightCopy> copies = weight_copies(holders);
  EXPECT_EQ(ranks_of(copies, kHalves[0]), (Ranks{{0, 2}, {4, 6}}));
  EXPECT_EQ(ranks_of(copies, kHalves[1]), (Ranks{{1}, {5}}));
  EXPECT_EQ(ranks_of(copies, kDraft), (Ranks{{3}, {6}}));
  EXPECT_EQ(copies.size(), 6U);
}

}  // namespace
}  // namespace paceline::policy
