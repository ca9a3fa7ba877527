#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "runtime/kv/sequences.hpp"

namespace paceline::kv {
namespace {

constexpr std::int32_t kBlock = 4;

/// A cache whose slots hold numbers, and tables kept true by edits alone.
class Cache {
 public:
  explicit Cache(std::int32_t blocks) : slots_(static_cast<std::size_t>(blocks) * kBlock, -1) {}

  void apply(Sequences& sequences) {
    sequences.take_work(work_);
    for (const TableEdit& e : work_.edits) {
      std::vector<std::int32_t>& table = tables_[e.sequence];
      table.resize(std::max<std::size_t>(table.size(), e.index + 1), -1);
      table[e.index] = e.block;
    }
    for (const auto& m : work_.moves) slot(m.to_block, m.to_slot) = slot(m.from_block, m.from_slot);
    std::set<std::int32_t> read;
    std::set<std::int32_t> written;
    for (const auto& c : work_.copies) {  // in any order: no block may be in two of them
      read.insert(c.from);
      EXPECT_TRUE(written.insert(c.to).second);
      for (std::int32_t i = 0; i < kBlock; ++i) slot(c.to, i) = slot(c.from, i);
    }
    for (const std::int32_t block : written) EXPECT_EQ(read.count(block), 0U);
  }
  void resize(std::int32_t blocks) { slots_.resize(static_cast<std::size_t>(blocks) * kBlock, -1); }
  std::int64_t& at(Handle sequence, std::int32_t position) {
    return slot(tables_[sequence].at(position / kBlock), position % kBlock);
  }
  std::int64_t& slot(std::int32_t block, std::int32_t i) {
    return slots_.at(static_cast<std::size_t>(block) * kBlock + i);
  }

 private:
  std::vector<std::int64_t> slots_;
  std::map<Handle, std::vector<std::int32_t>> tables_;
  Work work_;
};

void compute(Sequences& sequences, Cache& cache, Handle h, std::int32_t rows, std::int64_t first) {
  cache.apply(sequences);
  for (std::int32_t i = 0; i < rows; ++i) cache.at(h, sequences.length(h) + i) = first + i;
  sequences.advance(h, rows);
}

std::vector<TokenId> tokens_from(TokenId first, std::int32_t count) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

TEST(Sequences, PromptsThatBeginAlikeShareFullBlocks) {
  Sequences sequences(40, kBlock);
  Cache cache(40);
  const std::vector<TokenId> one = tokens_from(0, 10);
  std::vector<TokenId> other = tokens_from(0, 15);
  other[9] = 77;  // two full blocks are alike
  const Handle first = *sequences.open(1, 10, 12, one);
  const Handle second = *sequences.open(2, 15, 16, other);
  EXPECT_EQ(sequences.own_from(second), 8);
  EXPECT_FALSE(sequences.ready(second)) << "it waits for what the first computes";
  compute(sequences, cache, first, 7, 0);
  EXPECT_FALSE(sequences.ready(second));
  compute(sequences, cache, first, 1, 7);
  ASSERT_TRUE(sequences.ready(second)) << "and for no more than that";
  EXPECT_EQ(sequences.length(second), 8);
  EXPECT_EQ(sequences.positions_shared(), 8U);
  compute(sequences, cache, first, 2, 8);
  compute(sequences, cache, second, 7, 1008);
  EXPECT_EQ(sequences.table(first)[1], sequences.table(second)[1]);
  EXPECT_NE(sequences.table(first)[2], sequences.table(second)[2]);
  // What is there already is taken over at once; the block of the last position is not.
  const Handle third = *sequences.open(3, 8, 12, tokens_from(0, 8));
  EXPECT_EQ(sequences.length(third), 4);
  EXPECT_TRUE(sequences.ready(third));
  // A sibling of it, and a prompt that gives no tokens, as ever.
  const Handle sibling = *sequences.open(3, 8, 12, tokens_from(0, 8));
  EXPECT_FALSE(sequences.ready(sibling));
  const Handle alone = *sequences.open(4, 10, 12);
  EXPECT_EQ(sequences.length(alone), 0);
  sequences.close(first);
  compute(sequences, cache, third, 4, 4);
  ASSERT_TRUE(sequences.ready(sibling));
  compute(sequences, cache, sibling, 1, 7);
  for (const Handle h : {third, sibling}) {
    for (std::int32_t p = 0; p < 8; ++p) EXPECT_EQ(cache.at(h, p), p);
  }
  for (std::int32_t p = 0; p < 8; ++p) EXPECT_EQ(cache.at(second, p), p);
  for (const Handle h : {second, third, sibling, alone}) sequences.close(h);
  EXPECT_EQ(sequences.blocks_used(), sequences.blocks_idle());
  EXPECT_TRUE(sequences.open(5, 150, 150).has_value())
      << "idle prompts make room, whatever they share";
}

TEST(Sequences, WhoeverWaitsForAPromptThatIsGivenUpComputesItself) {
  Sequences sequences(40, kBlock);
  Cache cache(40);
  const std::vector<TokenId> tokens = tokens_from(0, 12);
  const Handle first = *sequences.open(1, 12, 12, tokens);
  const Handle second = *sequences.open(2, 11, 12, tokens_from(0, 11));
  compute(sequences, cache, first, 3, 0);
  EXPECT_FALSE(sequences.ready(second));
  sequences.close(first);
  ASSERT_TRUE(sequences.ready(second));
  EXPECT_EQ(sequences.length(second), 0);
  // A sibling takes over what was computed of a prompt, for others too.
  const Handle sibling = *sequences.open(2, 11, 12, tokens_from(0, 11));
  const Handle third = *sequences.open(3, 12, 12, tokens);
  compute(sequences, cache, second, 5, 0);
  sequences.close(second);
  EXPECT_TRUE(sequences.ready(sibling));
  EXPECT_FALSE(sequences.ready(third));
  compute(sequences, cache, sibling, 3, 5);
  ASSERT_TRUE(sequences.ready(third));
  cache.apply(sequences);
  for (std::int32_t p = 0; p < 8; ++p) EXPECT_EQ(cache.at(third, p), p);
}

TEST(Sequences, NobodyWaitsForAPromptThatIsNotComputed) {
  Sequences sequences(60, kBlock);
  Cache cache(60);
  const Handle there = *sequences.open(1, 10, 12, tokens_from(0, 10));
  compute(sequences, cache, there, 10, 0);
  // A source that has more in common, whose KV is on its way from elsewhere past its second block.
  const Handle source = *sequences.open(2, 24, 24, tokens_from(0, 24));
  EXPECT_EQ(sequences.length(source), 8);
  const Handle waits = *sequences.open(3, 24, 24, tokens_from(0, 24));
  EXPECT_FALSE(sequences.ready(waits)) << "it may well be computed";
  compute(sequences, cache, source, 5, 8);
  sequences.pause(source, true);
  ASSERT_TRUE(sequences.ready(waits));
  EXPECT_EQ(sequences.length(waits), 12) << "what is there";
  EXPECT_EQ(sequences.own_from(waits), 12);
  sequences.pause(waits, true);  // else the next would wait for what it computes
  const Handle later = *sequences.open(4, 23, 24, tokens_from(0, 23));
  ASSERT_TRUE(sequences.ready(later));
  EXPECT_EQ(sequences.length(later), 12);
  // One that goes on computing is waited for, one that goes leaves another.
  sequences.pause(source, false);
  const Handle again = *sequences.open(5, 22, 24, tokens_from(0, 22));
  EXPECT_FALSE(sequences.ready(again));
  sequences.close(source);
  ASSERT_TRUE(sequences.ready(again));
  EXPECT_EQ(sequences.length(again), 12);
  for (const Handle h : {waits, later, again}) {
    compute(sequences, cache, h, 8, 12);
    for (std::int32_t p = 0; p < 20; ++p) EXPECT_EQ(cache.at(h, p), p);
  }
}

// Prompts of a tree of texts come and go at random; KV is a function of the text up to it.
TEST(Sequences, SharedPrefixesHoldWhatTheirTextsSay) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    Sequences sequences(30, kBlock);
    Cache cache(30);
    const auto text_of = [](int prompt) {
      std::vector<TokenId> tokens;
      for (int i = 0; i < 6 + prompt * 3 % 17; ++i)
        tokens.push_back(i < 5 ? 1 : i < 9 ? prompt % 2 : i < 13 ? prompt % 4 : prompt);
      return tokens;
    };
    const auto value = [](const std::vector<TokenId>& text, std::int32_t position) {
      std::uint64_t hash = 7;
      for (std::int32_t i = 0; i <= position; ++i) hash = hash * 31 + text[i];
      return hash;
    };
    std::map<Handle, int> live;
    for (int turn = 0; turn < 300; ++turn) {
      if (below(3) == 0) {
        const int prompt = below(8);
        const auto tokens = text_of(prompt);
        const auto length = static_cast<std::int32_t>(tokens.size());
        if (const auto h = sequences.open(prompt, length, length + below(9), tokens))
          live.emplace(*h, prompt);
      } else if (!live.empty()) {
        const auto it = std::next(live.begin(), below(static_cast<int>(live.size())));
        const auto& [h, prompt] = *it;
        if (below(4) == 0) {
          sequences.close(h);
          live.erase(it);
          continue;
        }
        if (!sequences.ready(h)) continue;
        sequences.pause(h, below(6) == 0);
        const auto tokens = text_of(prompt);
        const std::int32_t length = sequences.length(h);
        const std::int32_t rows =
            std::min<std::int32_t>(1 + below(5), static_cast<std::int32_t>(tokens.size()) - length);
        cache.apply(sequences);
        for (std::int32_t p = 0; p < length; ++p) ASSERT_EQ(cache.at(h, p), value(tokens, p));
        if (rows < 1) continue;
        for (std::int32_t p = length; p < length + rows; ++p) cache.at(h, p) = value(tokens, p);
        sequences.advance(h, rows);
      }
    }
    for (const auto& [h, prompt] : live) sequences.close(h);
    EXPECT_EQ(sequences.blocks_used(), sequences.blocks_idle()) << "blocks leak";
    EXPECT_GT(sequences.positions_shared(), 0U);
  }
}

TEST(Sequences, SiblingsShareThePromptButNotItsLastBlock) {
  Sequences sequences(16, kBlock);
  Cache cache(16);
  const Handle first = *sequences.open(7, 10, 12);
  const Handle second = *sequences.open(7, 10, 12);
  EXPECT_EQ(sequences.blocks_used(), 4 + 1);  // two of the prompt are not the second's to hold
  EXPECT_TRUE(sequences.ready(first));
  EXPECT_FALSE(sequences.ready(second));
  compute(sequences, cache, first, 10, 100);
  ASSERT_TRUE(sequences.ready(second));
  EXPECT_EQ(sequences.length(second), 9);
  compute(sequences, cache, second, 1, 109);
  EXPECT_EQ(sequences.table(first)[0], sequences.table(second)[0]);
  EXPECT_EQ(sequences.table(first)[1], sequences.table(second)[1]);
  EXPECT_NE(sequences.table(first)[2], sequences.table(second)[2]);
  compute(sequences, cache, first, 1, 500);
  compute(sequences, cache, second, 1, 600);
  for (std::int32_t p = 0; p < 10; ++p) {
    EXPECT_EQ(cache.at(first, p), 100 + p);
    EXPECT_EQ(cache.at(second, p), 100 + p);
  }
  EXPECT_EQ(cache.at(first, 10), 500);
  EXPECT_EQ(cache.at(second, 10), 600);
}

TEST(Sequences, APromptStaysUntilItsBlocksAreNeeded) {
  Sequences sequences(8, kBlock);
  Cache cache(8);
  const Handle first = *sequences.open(1, 8, 8);
  compute(sequences, cache, first, 7, 0);
  EXPECT_FALSE(sequences.holds_prompt(1));
  compute(sequences, cache, first, 1, 7);
  sequences.close(first);
  EXPECT_TRUE(sequences.holds_prompt(1));
  EXPECT_EQ(sequences.blocks_used(), 2);
  EXPECT_EQ(sequences.blocks_idle(), 2);
  const Handle again = *sequences.open(1, 8, 12);
  EXPECT_TRUE(sequences.ready(again));
  EXPECT_EQ(sequences.length(again), 7);
  sequences.close(again);
  const Handle other = *sequences.open(2, 8, 28);
  EXPECT_EQ(sequences.blocks_idle(), 0);
  EXPECT_FALSE(sequences.holds_prompt(1));
  EXPECT_EQ(sequences.blocks_used(), 8);
  EXPECT_FALSE(sequences.open(3, 1, 1));
  sequences.close(other);
  EXPECT_EQ(sequences.blocks_used(), 0);
}

TEST(Sequences, WhoeverWaitsGoesOnWithAPromptThatWasLeftHalfDone) {
  Sequences sequences(32, kBlock);
  Cache cache(32);
  const Handle first = *sequences.open(1, 18, 20);
  const Handle second = *sequences.open(1, 18, 20);
  const Handle third = *sequences.open(1, 18, 20);
  compute(sequences, cache, first, 9, 100);
  sequences.close(first);
  ASSERT_TRUE(sequences.ready(second));
  EXPECT_EQ(sequences.length(second), 9);
  EXPECT_FALSE(sequences.ready(third));
  compute(sequences, cache, second, 9, 109);
  ASSERT_TRUE(sequences.ready(third));
  compute(sequences, cache, third, 1, 117);
  for (std::int32_t p = 0; p < 18; ++p) EXPECT_EQ(cache.at(third, p), 100 + p);
}

TEST(Sequences, RowsOfATreeMoveToTheirPlaces) {
  Sequences sequences(8, kBlock);
  Cache cache(8);
  const Handle h = *sequences.open(1, 3, 16);
  compute(sequences, cache, h, 3, 0);
  cache.apply(sequences);
  for (std::int32_t p = 3; p < 10; ++p) cache.at(h, p) = 50 + p;
  for (const std::int32_t p : {3, 6, 9}) sequences.keep(h, p);
  EXPECT_EQ(sequences.length(h), 6);
  EXPECT_THROW((void)sequences.detach(h), std::logic_error);
  cache.apply(sequences);
  EXPECT_EQ(cache.at(h, 3), 53);
  EXPECT_EQ(cache.at(h, 4), 56);
  EXPECT_EQ(cache.at(h, 5), 59);
}

// The prompt's last position may be computed with a draft behind it. Then the rows that were
// accepted lie in the block that goes to the siblings, of which the owner gets a copy.
TEST(Sequences, RowsOfATreeMoveBeforeTheOwnerGoesOnInACopy) {
  for (const std::int32_t accepted : {7, 8}) {  // of the same block and of the next
    Sequences sequences(16, kBlock);
    Cache cache(16);
    const Handle first = *sequences.open(1, 6, 12);
    const Handle second = *sequences.open(1, 6, 12);
    compute(sequences, cache, first, 5, 100);
    cache.apply(sequences);
    for (std::int32_t p = 5; p < 9; ++p) cache.at(first, p) = 200 + p;
    sequences.keep(first, 5);
    sequences.keep(first, accepted);
    ASSERT_TRUE(sequences.ready(second));
    cache.apply(sequences);
    EXPECT_EQ(sequences.length(first), 7);
    EXPECT_EQ(cache.at(first, 4), 104);
    EXPECT_EQ(cache.at(first, 5), 205);
    EXPECT_EQ(cache.at(first, 6), 200 + accepted);
    EXPECT_EQ(cache.at(second, 4), 104);
    EXPECT_EQ(sequences.length(second), 5);
  }
}

TEST(Sequences, WhatLeavesKeepsItsBlocksUntilReleased) {
  Sequences sequences(8, kBlock);
  Cache cache(8);
  const Handle h = *sequences.open(1, 5, 20);
  compute(sequences, cache, h, 5, 0);
  compute(sequences, cache, h, 4, 5);
  cache.apply(sequences);
  const Parcel parcel = sequences.detach(h);
  EXPECT_EQ(parcel.positions, 9);
  ASSERT_EQ(parcel.blocks.size(), 3U);
  EXPECT_EQ(sequences.blocks_used(), 4);  // and the prompt's last block
  for (std::int32_t p = 0; p < 9; ++p)
    EXPECT_EQ(cache.slot(parcel.blocks[p / kBlock], p % kBlock), p);
  EXPECT_FALSE(sequences.resize(1));
  EXPECT_EQ(sequences.blocks_idle(), 1) << "the parcel holds the prompt's first block";
  const std::int32_t blocks = sequences.blocks() - sequences.blocks_used() + 2;
  EXPECT_FALSE(sequences.open(2, 1, (blocks - 1) * kBlock));
  EXPECT_TRUE(sequences.knows(1)) << "dropping the prompt would not have made room enough";
  sequences.release(parcel);
  EXPECT_EQ(sequences.blocks_used(), 2);
  EXPECT_EQ(sequences.blocks_idle(), 2);
}

TEST(Sequences, WholeBlocksAreSharedWhileTheSequenceGoesOn) {
  Sequences sequences(8, kBlock);
  Cache cache(8);
  const Handle h = *sequences.open(1, 5, 16);
  compute(sequences, cache, h, 3, 100);
  cache.apply(sequences);
  EXPECT_EQ(sequences.share(h).positions, 0) << "the prompt is not complete: its heir may want it";
  compute(sequences, cache, h, 7, 103);
  EXPECT_THROW((void)sequences.share(h), std::logic_error) << "work on it has yet to be done";
  cache.apply(sequences);
  const Parcel parcel = sequences.share(h);
  EXPECT_EQ(parcel.positions, 8) << "of ten";
  ASSERT_EQ(parcel.blocks.size(), 2U);
  compute(sequences, cache, h, 4, 110);
  sequences.close(h);
  const Handle other = *sequences.open(2, 9, 12);  // takes all blocks that are free
  compute(sequences, cache, other, 9, 900);
  for (std::int32_t i = 0; i < 8; ++i)
    EXPECT_EQ(cache.slot(parcel.blocks[i / kBlock], i % kBlock), 100 + i);
  const std::int32_t used = sequences.blocks_used();
  sequences.release(parcel);
  EXPECT_LT(sequences.blocks_used(), used);
}

TEST(Sequences, ABranchSharesWholeBlocksAndGoesOnInACopy) {
  Sequences sequences(16, kBlock);
  Cache cache(16);
  const Handle own = *sequences.open(1, 5, 16);
  EXPECT_FALSE(sequences.branch(own, 0, 8)) << "no whole prompt";
  compute(sequences, cache, own, 14, 100);
  const std::int32_t used = sequences.blocks_used();
  const Handle branch = *sequences.branch(own, 10, 14);
  const Handle whole = *sequences.branch(own, 12, 13);
  EXPECT_EQ(sequences.blocks_used(), used + 2 + 1);
  compute(sequences, cache, branch, 4, 500);
  compute(sequences, cache, whole, 1, 600);
  for (std::int32_t p = 0; p < 14; ++p) {
    EXPECT_EQ(cache.at(own, p), 100 + p);
    EXPECT_EQ(cache.at(branch, p), p < 10 ? 100 + p : 490 + p);
    if (p < 13) {
      EXPECT_EQ(cache.at(whole, p), p < 12 ? 100 + p : 588 + p);
    }
  }
  // What is shared stays as it is while it is shared.
  EXPECT_THROW(sequences.roll_back(own, 11), std::logic_error);
  EXPECT_THROW(sequences.roll_back(branch, 7), std::logic_error);
  sequences.roll_back(branch, 8);
  sequences.close(own);
  EXPECT_THROW(sequences.roll_back(whole, 7), std::logic_error);
  sequences.close(branch);
  sequences.roll_back(whole, 7);
  compute(sequences, cache, whole, 1, 700);
  EXPECT_EQ(cache.at(whole, 6), 106);
  EXPECT_EQ(cache.at(whole, 7), 700);
  EXPECT_FALSE(sequences.branch(whole, 8, 8 + 16 * kBlock)) << "no room";
  EXPECT_THROW((void)sequences.branch(whole, 9, 12), std::logic_error);
  sequences.close(whole);
  EXPECT_EQ(sequences.blocks_used(), sequences.blocks_idle());
}

TEST(Sequences, CallsThatMakeNoSenseAreFaults) {
  Sequences sequences(8, kBlock);
  EXPECT_THROW((void)sequences.open(1, 0, 4), std::logic_error);
  EXPECT_THROW((void)sequences.open(1, 5, 4), std::logic_error);
  const Handle h = *sequences.open(1, 9, 12);
  EXPECT_THROW(sequences.advance(h, 13), std::logic_error);
  sequences.advance(h, 9);
  EXPECT_THROW(sequences.roll_back(h, 10), std::logic_error);
  EXPECT_THROW(sequences.roll_back(h, 7), std::logic_error);  // siblings may read it
  sequences.roll_back(h, 8);
  sequences.close(h);
  EXPECT_THROW(sequences.close(h), std::logic_error);
}

/// Random sequences of random prompts that open, grow by chains and trees, branch, roll back,
/// close, leave, and a pool that is resized: each sequence always reads what it wrote.
TEST(Sequences, EverySequenceReadsItsOwnTextWhateverHappens) {
  struct Live {
    std::uint32_t prompt;
    std::int32_t prompt_length;
    std::vector<std::int64_t> text;
    std::int32_t fixed = 0;  ///< positions that may be shared with branches
  };
  int branches = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<std::int32_t>(random() % n); };
    std::int32_t blocks = 40;
    Sequences sequences(blocks, kBlock);
    Cache cache(blocks);
    std::map<Handle, Live> live;
    std::vector<std::pair<Parcel, std::vector<std::int64_t>>> parcels;
    std::int64_t next = 1000;
    const auto prompt_value = [](std::uint32_t prompt, std::int32_t p) {
      return -static_cast<std::int64_t>(prompt * 100 + p + 2);
    };
    for (int turn = 0; turn < 600; ++turn) {
      const int what = below(13);
      const auto some = [&] { return std::next(live.begin(), below(live.size())); };
      if (what < 3) {
        const auto prompt = static_cast<std::uint32_t>(below(4));
        const std::int32_t length =
            3 + 4 * static_cast<std::int32_t>(prompt) - (prompt == 2 ? 3 : 0);
        if (const auto h = sequences.open(prompt, length, length + below(20)))
          live[*h] = {prompt, length, {}, 0};
      } else if (what == 3 && !live.empty()) {
        const auto it = some();
        sequences.close(it->first);
        live.erase(it);
      } else if (what == 4 && !live.empty()) {
        const auto it = some();
        cache.apply(sequences);
        std::vector<std::int64_t> text = it->second.text;
        Parcel parcel = sequences.detach(it->first);
        text.resize(parcel.positions);
        parcels.emplace_back(std::move(parcel), std::move(text));
        live.erase(it);
      } else if (what == 5 && !parcels.empty()) {
        sequences.release(parcels.back().first);
        parcels.pop_back();
      } else if (what == 12 && !live.empty()) {
        auto& [h, s] = *some();
        const auto length = static_cast<std::int32_t>(s.text.size());
        if (length <= s.prompt_length) continue;
        const std::int32_t at = s.prompt_length + below(length - s.prompt_length + 1);
        cache.apply(sequences);
        const auto branch = sequences.branch(h, at, at + 1 + below(6));
        cache.apply(sequences);
        if (!branch) continue;
        ++branches;
        s.fixed = std::max(s.fixed, at / kBlock * kBlock);
        live[*branch] = {
            s.prompt, s.prompt_length, {s.text.begin(), s.text.begin() + at}, at / kBlock * kBlock};
      } else if (what == 6) {
        cache.apply(sequences);
        const std::int32_t wanted = 20 + below(40);
        cache.resize(std::max(blocks, wanted));
        if (sequences.resize(wanted)) {
          cache.apply(sequences);
          blocks = wanted;
        }
        cache.resize(blocks);
        ASSERT_EQ(sequences.blocks(), blocks);
      } else if (!live.empty()) {
        auto& [h, s] = *some();
        if (!sequences.ready(h)) continue;
        std::int32_t length = sequences.length(h);
        if (s.text.empty()) {  // forked or took over what another computed
          for (std::int32_t p = 0; p < length; ++p) s.text.push_back(prompt_value(s.prompt, p));
        }
        if (below(8) == 0) {
          const std::int32_t least = std::max({length - 3, s.prompt_length, s.fixed});
          if (least < length) sequences.roll_back(h, least);
        }
        length = sequences.length(h);
        s.text.resize(length);
        std::int32_t rows = 1 + below(5);
        if (length + rows > sequences.reserved(h) && !sequences.reserve(h, length + rows)) continue;
        cache.apply(sequences);
        if (length < s.prompt_length) {
          rows = std::min(rows, s.prompt_length - length);
          for (std::int32_t i = 0; i < rows; ++i) {
            s.text.push_back(prompt_value(s.prompt, length + i));
            cache.at(h, length + i) = s.text.back();
          }
          sequences.advance(h, rows);
        } else {
          for (std::int32_t i = 0; i < rows; ++i) cache.at(h, length + i) = next + i;
          for (std::int32_t i = 0; i < rows; i += 1 + below(2)) {
            s.text.push_back(next + i);
            sequences.keep(h, length + i);
          }
          next += rows;
        }
      }
      if (below(3) != 0) continue;  // work gathers over several turns
      cache.apply(sequences);
      for (auto& [h, s] : live) {
        if (s.text.empty()) continue;
        ASSERT_EQ(sequences.length(h), static_cast<std::int32_t>(s.text.size()));
        for (std::size_t p = 0; p < s.text.size(); ++p)
          ASSERT_EQ(cache.at(h, static_cast<std::int32_t>(p)), s.text[p])
              << "seed " << seed << " turn " << turn << " position " << p;
      }
      for (const auto& [parcel, text] : parcels) {
        for (std::size_t p = 0; p < text.size(); ++p)
          ASSERT_EQ(cache.slot(parcel.blocks[p / kBlock], static_cast<std::int32_t>(p) % kBlock),
                    text[p]);
      }
    }
    for (auto& [h, s] : live) sequences.close(h);
    for (auto& [parcel, text] : parcels) sequences.release(parcel);
    EXPECT_EQ(sequences.blocks_used(), sequences.blocks_idle()) << "blocks leak";
  }
  EXPECT_GT(branches, 100);
}

}  // namespace
}  // namespace paceline::kv
