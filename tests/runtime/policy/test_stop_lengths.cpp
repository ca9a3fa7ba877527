#include "runtime/policy/length/stop_lengths.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

namespace paceline::policy {
namespace {

constexpr int kCalls = StopPoint::kCalls;

struct Tree {
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  std::vector<int> depths;
  std::vector<double> conditional;  ///< by the target
};

/// As heads grow them: of each level the likeliest `width` have `width` children each.
Tree grown(int width, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  Tree tree;
  std::vector<std::int32_t> frontier{-1};
  for (int depth = 1; depth <= kCalls; ++depth) {
    std::vector<std::int32_t> level;
    for (const std::int32_t parent : frontier) {
      double left = 1;
      for (int child = 0; child < width; ++child) {
        const double before = parent < 0 ? 1 : tree.scores[parent];
        tree.parents.push_back(parent);
        tree.scores.push_back(static_cast<float>(before * uniform(random)));
        tree.depths.push_back(depth);
        tree.conditional.push_back(left * uniform(random));
        left -= tree.conditional.back();
        level.push_back(static_cast<std::int32_t>(tree.parents.size()) - 1);
      }
    }
    std::stable_sort(level.begin(), level.end(),
                     [&](auto a, auto b) { return tree.scores[a] > tree.scores[b]; });
    level.resize(width);
    frontier = level;
  }
  return tree;
}

/// What a verifier is given where drafting stops after so many calls.
std::vector<bool> standing(const Tree& tree, int calls, int most) {
  std::vector<std::int32_t> order(tree.parents.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](std::int32_t t) { return tree.depths[t] > calls; });
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return tree.scores[a] > tree.scores[b]; });
  std::vector<bool> stands(tree.parents.size());
  for (std::size_t i = 0; i < order.size() && i < static_cast<std::size_t>(most); ++i)
    stands[order[i]] = true;
  return stands;
}

TEST(StoppedTrees, LengthsAreThoseOfEquationsEightToTen) {
  for (const int most : {1, 7, 20, 59, 1000}) {
    const Tree tree = grown(4, static_cast<std::uint32_t>(most));
    const StoppedTrees trees(tree.parents, tree.scores, most);
    const StopPoint::Lengths lengths = trees.lengths(tree.conditional);
    std::vector<bool> ever(tree.parents.size());
    for (int calls = 1; calls <= kCalls; ++calls) {
      const std::vector<bool> stands = standing(tree, calls, most);
      std::vector<double> reached(tree.parents.size());
      std::vector<double> children(tree.parents.size());  // P(one of them is accepted)
      double of_text = 0;
      for (std::size_t t = 0; t < stands.size(); ++t) {
        if (!stands[t]) continue;
        ever[t] = true;
        const std::int32_t parent = tree.parents[t];
        reached[t] = (parent < 0 ? 1 : reached[parent]) * tree.conditional[t];
        (parent < 0 ? of_text : children[parent]) += tree.conditional[t];
      }
      std::vector<double> expected(kCalls + 1);
      expected[0] = 1 - of_text;
      for (std::size_t t = 0; t < stands.size(); ++t) {
        if (stands[t]) expected[tree.depths[t]] += reached[t] * (1 - children[t]);
      }
      for (int n = 0; n <= kCalls; ++n)
        EXPECT_NEAR(lengths[calls - 1][n], expected[n], 1e-6) << calls << " calls, " << n;
    }
    for (std::int32_t t = 0; t < trees.size(); ++t) {
      EXPECT_EQ(trees.verified(t), ever[t]);
      const auto child = std::find_if(tree.parents.begin(), tree.parents.end(),
                                      [&](std::int32_t parent) { return parent == t; });
      if (child == tree.parents.end()) {
        EXPECT_FALSE(trees.inner(t));
      }
      if (trees.verified(t) && tree.parents[t] >= 0) {
        EXPECT_TRUE(trees.inner(tree.parents[t]));
      }
    }
  }
}

TEST(StoppedTrees, WhatIsAcceptedEndsWhereATreeDoesNotStandAnyMore) {
  const Tree tree = grown(3, 5);
  for (const int most : {5, 12}) {
    const StoppedTrees trees(tree.parents, tree.scores, most);
    for (std::size_t leaf = 0; leaf < tree.parents.size(); ++leaf) {
      std::vector<std::int32_t> path;
      for (auto t = static_cast<std::int32_t>(leaf); t >= 0; t = tree.parents[t]) path.push_back(t);
      std::reverse(path.begin(), path.end());
      const StopPoint::Accepted accepted = trees.accepted(path);
      for (int calls = 1; calls <= kCalls; ++calls) {
        const std::vector<bool> stands = standing(tree, calls, most);
        std::size_t expected = 0;
        while (expected < path.size() && stands[path[expected]]) ++expected;
        EXPECT_EQ(accepted[calls - 1], expected);
      }
    }
    EXPECT_EQ(trees.accepted({}), StopPoint::Accepted{});
  }
}

TEST(StoppedTrees, RefusesWhatIsNoTreeOfSoManyCalls) {
  const std::vector<std::int32_t> parents{-1, 0};
  EXPECT_THROW(StoppedTrees(parents, std::vector<float>{0.5F}, 4), std::invalid_argument);
  std::vector<std::int32_t> chain(kCalls + 1);
  std::iota(chain.begin(), chain.end(), -1);
  EXPECT_THROW(StoppedTrees(chain, std::vector<float>(chain.size(), 0.5F), 4),
               std::invalid_argument);
}

}  // namespace
}  // namespace paceline::policy
