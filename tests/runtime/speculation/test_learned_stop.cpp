#include "runtime/speculation/learned_stop.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/runtime/policy/stop_network_tensors.hpp"

namespace paceline::speculation {
namespace {

using draft::GrowingDraft;
using policy::StopNetwork;

/// What is told of a draft at a level.
std::vector<float> frontier(int request, int level) {
  std::vector<float> values;
  for (int i = 0; i < StopNetwork::kStates; ++i)
    values.push_back(-0.1F * static_cast<float>((request + 1) * level + i));
  return values;
}

GrowingDraft growing(int request, std::span<const float> frontier) {
  return {{static_cast<std::uint32_t>(request), 0},
          {5, static_cast<std::uint64_t>(request)},
          17,
          frontier};
}

/// Levels of the drafts of these requests, judged together.
std::vector<int> levels_of(LearnedStop& stop, const std::vector<int>& requests) {
  std::vector<int> levels(requests.size(), 1);
  std::vector<std::size_t> open(requests.size());
  for (std::size_t i = 0; i < open.size(); ++i) open[i] = i;
  for (int level = 1; !open.empty(); ++level) {
    std::vector<std::vector<float>> frontiers;
    std::vector<GrowingDraft> drafts;
    for (const std::size_t i : open) frontiers.push_back(frontier(requests[i], level));
    for (std::size_t i = 0; i < open.size(); ++i)
      drafts.push_back(growing(requests[open[i]], frontiers[i]));
    stop.judge(level, drafts);
    std::vector<std::size_t> more;
    for (std::size_t i = 0; i < open.size(); ++i) {
      levels[open[i]] = level + (drafts[i].grows ? 1 : 0);
      if (drafts[i].grows) more.push_back(open[i]);
    }
    open = more;
  }
  return levels;
}

std::shared_ptr<const StopNetwork> network(float stops) {
  policy::StopNetworkTensors tensors;
  tensors.values("mlp.3.bias") = {stops, 0};
  return std::make_shared<StopNetwork>(tensors);
}

TEST(LearnedStop, ADraftDoesNotDependOnTheOthers) {
  LearnedStop stop(network(-1));
  std::vector<int> requests(60);
  for (int i = 0; i < 60; ++i) requests[i] = i;
  const std::vector<int> together = levels_of(stop, requests);
  std::vector<int> alone;
  for (const int request : requests) alone.push_back(levels_of(stop, {request})[0]);
  EXPECT_EQ(alone, together);
  const auto [least, most] = std::minmax_element(together.begin(), together.end());
  EXPECT_LT(*least, *most) << "all drafts are as long";
}

TEST(LearnedStop, EndsWhereItsPublishedFormDoes) {
  LearnedStop never(network(-100));
  EXPECT_EQ(levels_of(never, {3})[0], policy::kMostExpansions + 1);
  LearnedStop at_once(network(100));
  EXPECT_EQ(levels_of(at_once, {3})[0], 1);
}

TEST(LearnedStop, ALevelMayLackTokens) {
  LearnedStop stop(network(0));
  const std::vector<float> few{-0.5F};
  std::vector<GrowingDraft> drafts{growing(1, few), growing(2, {})};
  stop.judge(1, drafts);
  std::vector<float> many(40, -1);
  drafts = {growing(1, many)};
  stop.judge(2, drafts);
}

}  // namespace
}  // namespace paceline::speculation
