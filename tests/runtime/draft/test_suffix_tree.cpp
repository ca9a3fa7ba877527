#include <gtest/gtest.h>

#include <random>

#include "tests/runtime/draft/naive_tree.hpp"

namespace paceline::draft {
namespace {

using Text = std::vector<TokenId>;

/// Sequences that grow by turns, with the tree that was told of each step.
struct Growing {
  explicit Growing(int depth) : tree(depth) {}

  void append(std::size_t sequence, const Text& tokens) {
    while (sequences.size() <= sequence) {
      sequences.emplace_back();
      tree.add_sequence();
    }
    tree.append(static_cast<SuffixTree::Sequence>(sequence), tokens);
    sequences[sequence].insert(sequences[sequence].end(), tokens.begin(), tokens.end());
  }

  SuffixTree tree;
  std::vector<Text> sequences;
};

/// Random text that repeats itself and its siblings, and keeps in step with them now and then.
void grow(Growing& growing, std::mt19937& random, int steps) {
  const int vocabulary = std::uniform_int_distribution(1, 40)(random);
  const auto sequences = std::uniform_int_distribution<std::size_t>(1, 5)(random);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (int i = 0; i < steps; ++i) {
    const std::size_t to = below(sequences);
    if (growing.sequences.size() == sequences && below(3) == 0) {
      const Text& from = growing.sequences[below(sequences)];
      if (from.empty()) continue;
      const std::size_t first = below(from.size());
      const std::size_t count = 1 + below(std::min<std::size_t>(from.size() - first, 12));
      growing.append(to, Text(from.begin() + first, from.begin() + first + count));
    } else if (below(8) == 0) {
      const Text same(1 + below(6), static_cast<TokenId>(below(vocabulary)));
      for (std::size_t s = 0; s < sequences; ++s) growing.append(s, same);
    } else {
      growing.append(to, {static_cast<TokenId>(below(vocabulary))});
    }
  }
}

TEST(SuffixTree, CountsEverySubstringAsANaiveTableDoes) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Growing growing(std::uniform_int_distribution(1, 14)(random));
    for (int part = 0; part < 3; ++part) {
      grow(growing, random, 25);
      const NaiveTree naive(growing.tree.depth(), growing.sequences);
      ASSERT_EQ(difference(growing.tree, naive), "") << "round " << round;
    }
  }
}

TEST(SuffixTree, FindsNothingElse) {
  Growing growing(4);
  growing.append(0, {1, 2, 3, 1, 2});
  EXPECT_FALSE(growing.tree.find(Text{2, 1}));
  EXPECT_FALSE(growing.tree.find(Text{3, 1, 2, 1}));
  EXPECT_FALSE(growing.tree.find(Text{4}));
  EXPECT_FALSE(growing.tree.find(Text{1, 2, 3, 1, 2})) << "deeper than the bound";
  EXPECT_TRUE(growing.tree.find(Text{1, 2, 3, 1}));
  EXPECT_TRUE(growing.tree.find(Text{}));
}

TEST(SuffixTree, KnowsWhereSuffixesEnd) {
  std::mt19937 random(2);
  for (int round = 0; round < 50; ++round) {
    Growing growing(9);
    grow(growing, random, 60);
    for (std::size_t s = 0; s < growing.sequences.size(); ++s) {
      const auto sequence = static_cast<SuffixTree::Sequence>(s);
      const Text& text = growing.sequences[s];
      ASSERT_EQ(growing.tree.active(sequence), std::min<int>(8, static_cast<int>(text.size())));
      for (int n = 1; n <= growing.tree.active(sequence); ++n) {
        const auto known = growing.tree.suffix(sequence, n);
        const auto found = growing.tree.find(std::span(text).last(n));
        ASSERT_TRUE(found);
        EXPECT_EQ(known.node, found->node);
        EXPECT_EQ(known.offset, found->offset);
      }
    }
  }
}

TEST(SuffixTree, InterleavedSequencesFormNoCommonSubstrings) {
  Growing growing(8);
  for (TokenId i = 0; i < 20; ++i) {
    growing.append(0, {i});
    growing.append(1, {100 + i});
  }
  for (TokenId i = 0; i < 20; ++i) {
    EXPECT_FALSE(growing.tree.find(Text{i, 100 + i}));
    EXPECT_FALSE(growing.tree.find(Text{100 + i, i + 1}));
  }
  EXPECT_TRUE(growing.tree.find(Text{3, 4, 5, 6}));
}

TEST(SuffixTree, CountsDoNotDependOnTheOrderOfGrowth) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    Growing growing(10);
    grow(growing, random, 80);
    SuffixTree at_once(10);
    for (const Text& text : growing.sequences) {
      const auto sequence = at_once.add_sequence();
      at_once.append(sequence, text);
      at_once.shrink(sequence);
    }
    ASSERT_EQ(difference(at_once, NaiveTree(10, growing.sequences)), "");
    EXPECT_EQ(at_once.nodes(), growing.tree.nodes());
  }
}

TEST(SuffixTree, ManyChildrenMoveToAMap) {
  std::mt19937 random(4);
  Growing growing(3);
  for (int i = 0; i < 3000; ++i) {
    const int token = std::uniform_int_distribution(0, 400)(random);
    growing.append(i % 2, {token * token / 400});  // some far more frequent than others
  }
  EXPECT_EQ(difference(growing.tree, NaiveTree(3, growing.sequences)), "");
}

TEST(SuffixTree, TakesNoMoreMemoryThanPlansCount) {
  std::mt19937 random(5);
  for (const TokenId vocabulary : {40, 30'000}) {  // of few tokens more, which no tokenizer has
    SuffixTree tree;
    for (SuffixTree::Sequence s = 0; s < 8; ++s) {
      tree.add_sequence();
      for (int i = 0; i < 2'000; ++i) {
        const TokenId token = std::uniform_int_distribution(0, vocabulary - 1)(random);
        tree.append(s, {&token, 1});
      }
    }
    EXPECT_LE(tree.bytes(), SuffixTree::most_bytes(1, 8 * 2'000) * 11 / 10) << vocabulary;
  }
}

TEST(SuffixTree, RejectsBadDepths) {
  EXPECT_THROW(SuffixTree(0), std::invalid_argument);
  EXPECT_THROW(SuffixTree(SuffixTree::kMaxDepth + 1), std::invalid_argument);
}

SpeculationOptions random_options(std::mt19937& random) {
  const auto between = [&](int a, int b) { return std::uniform_int_distribution(a, b)(random); };
  SpeculationOptions o;
  o.limits = {between(1, 12), between(1, 6), between(1, 4)};
  o.min_match = between(1, 2);
  o.max_match = between(1, 12);
  o.offset = between(0, 4);
  o.min_probability = static_cast<float>(between(0, 5)) / 10;
  return o;
}

TEST(Speculation, DraftsWhatTheNaiveTableSays) {
  std::mt19937 random(5);
  SpeculationScratch scratch;
  int drafted = 0;
  for (int round = 0; round < 150; ++round) {
    Growing growing(std::uniform_int_distribution(2, 14)(random));
    grow(growing, random, 80);
    const NaiveTree naive(growing.tree.depth(), growing.sequences);
    for (int i = 0; i < 60; ++i) {
      const SpeculationOptions options = random_options(random);
      DraftBuffers buffers(12);
      const DraftOutput output = buffers.output();
      const auto s =
          std::uniform_int_distribution<std::size_t>(0, growing.sequences.size() - 1)(random);
      Text text = growing.sequences[s];
      if (text.empty()) continue;

      // The depth bounds what a sequence knows of its own suffixes.
      Text known = text;
      if (static_cast<int>(known.size()) >= growing.tree.depth()) {
        known.erase(known.begin(), known.end() - (growing.tree.depth() - 1));
      }
      DraftResult result =
          speculate(growing.tree, static_cast<SuffixTree::Sequence>(s), options, output, scratch);
      ASSERT_EQ(difference(result, output, naive.draft(known, options)), "") << round;
      drafted += result.count;

      text.resize(std::uniform_int_distribution<std::size_t>(1, text.size())(random));
      result = speculate(growing.tree, text, options, output, scratch);
      ASSERT_EQ(difference(result, output, naive.draft(text, options)), "") << round;
    }
  }
  EXPECT_GT(drafted, 1000);
}

// As SuffixDrafter does in trees that stay as they are.
TEST(Speculation, AMatchIsNoLongerThanTheLastOneAndWhatWasSaidSince) {
  std::mt19937 random(6);
  SpeculationScratch scratch;
  int cut = 0;
  for (int round = 0; round < 100; ++round) {
    Growing growing(std::uniform_int_distribution(4, 20)(random));
    grow(growing, random, 80);
    SpeculationOptions options = random_options(random);
    options.limits = {4, 2, 2};
    const int most = std::min(options.max_match, longest_match(growing.tree, options.limits));
    Text text;
    int bound = 0;
    for (int i = 0; i < 60; ++i) {
      const int said = std::uniform_int_distribution(1, 3)(random);
      for (int t = 0; t < said; ++t) {
        const Text& source = growing.sequences[random() % growing.sequences.size()];
        const bool follows = !source.empty() && random() % 4 != 0;
        text.push_back(follows ? source[(text.size() + 1) % source.size()] : 1);
      }
      bound += said;
      DraftBuffers buffers(4), bounded_buffers(4);
      const DraftResult whole = speculate(growing.tree, text, options, buffers.output(), scratch);
      SpeculationOptions bounded = options;
      bounded.max_match = std::min(most, bound);
      const DraftResult draft =
          speculate(growing.tree, text, bounded, bounded_buffers.output(), scratch);
      ASSERT_EQ(draft.longest, whole.longest);
      ASSERT_EQ(draft.count, whole.count);
      ASSERT_EQ(bounded_buffers.tokens, buffers.tokens);
      ASSERT_EQ(bounded_buffers.scores, buffers.scores);
      cut += bound < most ? 1 : 0;
      bound = draft.longest < most ? draft.longest : 1000;
    }
  }
  EXPECT_GT(cut, 1000);
}

TEST(Speculation, StaysWithinTheCallersMemory) {
  Growing growing(16);
  growing.append(0, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2});
  SpeculationOptions options;
  options.offset = 4;
  SpeculationScratch scratch;
  DraftBuffers buffers(3);
  EXPECT_EQ(speculate(growing.tree, 0, options, buffers.output(), scratch).count, 3);
  EXPECT_EQ(buffers.tokens, (Text{3, 4, 5}));
  EXPECT_EQ(buffers.parents, (std::vector<std::int32_t>{-1, 0, 1}));
  const DraftResult none = speculate(growing.tree, 0, options, {}, scratch);
  EXPECT_EQ(none.count, 0);
  EXPECT_EQ(none.longest, -1);
}

}  // namespace
}  // namespace paceline::draft
