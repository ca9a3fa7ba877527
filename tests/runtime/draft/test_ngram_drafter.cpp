#include "runtime/draft/ngram_drafter.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/runtime/draft/naive_tree.hpp"

namespace paceline::draft {
namespace {

using Text = std::vector<TokenId>;

Text naive_lookup(const Text& text, const NgramOptions& options, int length) {
  const int size = static_cast<int>(text.size());
  for (int n = std::min(options.max_n, size - 1); n >= options.min_n; --n) {
    int found = -1;
    for (int end = n; end < size; ++end) {
      if (!std::equal(text.begin() + end - n, text.begin() + end, text.end() - n)) continue;
      found = end;
    }
    if (found < 0) continue;
    return {text.begin() + found, text.begin() + std::min(size, found + length)};
  }
  return {};
}

TEST(NgramIndex, FindsWhatANaiveSearchFinds) {
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    NgramOptions options;
    options.min_n = std::uniform_int_distribution(1, 3)(random);
    options.max_n = options.min_n + std::uniform_int_distribution(0, 4)(random);
    const int vocabulary = std::uniform_int_distribution(1, 12)(random);
    NgramIndex index(options);
    Text text;
    for (int i = 0; i < 300; ++i) {
      const TokenId token = std::uniform_int_distribution(0, vocabulary - 1)(random);
      index.append({&token, 1});
      text.push_back(token);
      const auto found = index.lookup(7);
      ASSERT_EQ(Text(found.begin(), found.end()), naive_lookup(text, options, 7));
    }
  }
}

TEST(NgramDrafter, ProposesChains) {
  NgramDrafter drafter({.min_n = 2, .max_n = 3});
  drafter.start({{0, 0}, Text{1, 2, 3, 4, 5}, Text{1}, {}}, 0);
  drafter.start({{0, 1}, Text{1, 2, 3, 4, 5}, {}, {}}, 0);
  drafter.commit({0, 0}, Text{2}, 0);
  std::vector<DraftBuffers> buffers(2, DraftBuffers(4));
  std::vector<DraftSlot> batch(2);
  for (std::uint32_t i = 0; i < 2; ++i) {
    batch[i].id = {0, i};
    batch[i].limits = {3, 8, 1};
    batch[i].output = buffers[i].output();
  }
  drafter.propose(batch, 0, nullptr);
  EXPECT_EQ(batch[0].count, 3);
  EXPECT_EQ(buffers[0].tokens, (Text{3, 4, 5, 0}));
  EXPECT_EQ(buffers[0].parents, (std::vector<std::int32_t>{-1, 0, 1, 0}));
  EXPECT_EQ(batch[1].count, 0);
  drafter.finish({0, 0}, 0);
  EXPECT_THROW(drafter.commit({0, 0}, Text{1}, 0), std::logic_error);
  EXPECT_THROW(drafter.start({{0, 1}, Text{1}, {}, {}}, 0), std::logic_error);
}

TEST(NgramDrafter, RejectsBadOptions) {
  EXPECT_THROW(NgramDrafter({.min_n = 0, .max_n = 3}), std::invalid_argument);
  EXPECT_THROW(NgramDrafter({.min_n = 4, .max_n = 3}), std::invalid_argument);
}

}  // namespace
}  // namespace paceline::draft
