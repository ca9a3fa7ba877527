// EAGLE's dynamic tree: what is expanded, and what is kept.
#include "runtime/draft/dynamic_tree.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/runtime/draft/naive_tree.hpp"

namespace paceline::draft {
namespace {

using Children = std::vector<DynamicTree::Child>;
using Nodes = std::vector<std::int32_t>;

Nodes expand(DynamicTree& tree, int width, const std::vector<TokenId>& stops = {}) {
  const std::span<const std::int32_t> frontier = tree.expand(width, stops);
  return {frontier.begin(), frontier.end()};
}

TEST(DynamicTree, ExpandsTheLikeliestPathsAndKeepsTheLikeliestOfAll) {
  DynamicTree tree;
  const auto log = [](double p) { return std::log(p); };
  tree.add(-1, Children{{10, log(0.5)}, {11, log(0.3)}, {12, log(0.1)}});  // 0 1 2
  EXPECT_EQ(expand(tree, 2), (Nodes{0, 1}));
  tree.add(0, Children{{20, log(0.4)}, {21, log(0.2)}});  // 3: 0.2, 4: 0.1
  tree.add(1, Children{{22, log(0.9)}, {23, log(0.1)}});  // 5: 0.27, 6: 0.03
  EXPECT_EQ(expand(tree, 2), (Nodes{5, 3}));
  EXPECT_EQ(tree.token(5), 22);
  EXPECT_EQ(tree.parent(5), 1);
  EXPECT_EQ(tree.depth(5), 2);
  tree.add(5, Children{{30, log(0.5)}});  // 7: 0.135
  tree.add(3, Children{{31, log(1)}});    // 8: 0.2
  DraftBuffers buffers(16);
  ASSERT_EQ(tree.write(6, buffers.output()), 6);  // 0.5 0.3 0.27 0.2 0.2 0.135
  const std::vector<TokenId> tokens{10, 11, 20, 22, 30, 31};
  const std::vector<std::int32_t> parents{-1, -1, 0, 1, 3, 2};
  const std::vector<float> scores{0.5F, 0.3F, 0.2F, 0.27F, 0.135F, 0.2F};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(buffers.output().tokens[i], tokens[i]);
    EXPECT_EQ(buffers.output().parents[i], parents[i]);
    EXPECT_NEAR(buffers.output().scores[i], scores[i], 1e-6);
  }
  EXPECT_EQ(tree.write(0, buffers.output()), 0);
}

TEST(DynamicTree, StopsAreKeptAndNotExpanded) {
  DynamicTree tree;
  tree.add(-1, Children{{7, -0.1}, {8, -0.5}, {9, -0.7}});
  EXPECT_EQ(expand(tree, 2, {7}), (Nodes{1, 2}));
  EXPECT_TRUE(expand(tree, 2, {7}).empty());
  DraftBuffers buffers(4);
  ASSERT_EQ(tree.write(1, buffers.output()), 1);
  EXPECT_EQ(buffers.output().tokens[0], 7);
}

// Whatever the scores, ties among them too: parents before children, each of which is there.
TEST(DynamicTree, AnyPartOfItIsATree) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    DynamicTree tree;
    const int width = 1 + static_cast<int>(random() % 5);
    Nodes frontier{-1};
    int count = 0;
    for (int level = 0; level < 5; ++level) {
      for (const std::int32_t parent : frontier) {
        Children children;
        double probability = 0;
        for (int c = 0; c < width; ++c) {
          probability -= 0.5 * static_cast<double>(random() % 3);
          children.push_back({static_cast<TokenId>(random() % 1000), probability});
        }
        tree.add(parent, children);
        count += width;
      }
      frontier = expand(tree, width);
    }
    DraftBuffers buffers(200);
    const int most = 1 + static_cast<int>(random() % count);
    ASSERT_EQ(tree.write(most, buffers.output()), most);
    for (int i = 0; i < most; ++i) {
      const std::int32_t parent = buffers.output().parents[i];
      ASSERT_LT(parent, i);
      ASSERT_GE(parent, -1);
      if (parent >= 0) {
        ASSERT_LE(buffers.output().scores[i], buffers.output().scores[parent]);
      }
    }
  }
}

}  // namespace
}  // namespace paceline::draft
