#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "runtime/kv/owned_sequences.hpp"

namespace paceline::kv {
namespace {

constexpr std::int32_t kBlock = 16;
constexpr std::int32_t kOwners = 3;

TEST(OwnedSequences, NamesTellTheOwnerAndWorkComesApart) {
  OwnedSequences all(kOwners, 20, kBlock);
  std::vector<Sequences> apart(kOwners, Sequences(20, kBlock));
  std::set<Handle> handles;
  std::set<std::int32_t> blocks;
  for (std::int32_t owner = 0; owner < kOwners; ++owner) {
    for (std::uint32_t prompt = 0; prompt < 2; ++prompt) {
      const auto handle = all.open(owner, prompt, 20, 40 + 16 * owner, {});
      ASSERT_TRUE(handle);
      EXPECT_TRUE(handles.insert(*handle).second);
      EXPECT_EQ(all.owner_of(*handle), owner);
      const auto alone = apart[owner].open(prompt, 20, 40 + 16 * owner);
      const BlockOwner named{owner, kOwners};
      EXPECT_EQ(*handle, named.name(*alone));
      std::vector<std::int32_t> expected;
      for (const std::int32_t block : apart[owner].table(*alone))
        expected.push_back(named.name(block));
      EXPECT_EQ(all.table(*handle), expected);
      for (const std::int32_t block : expected) EXPECT_TRUE(blocks.insert(block).second);
      EXPECT_TRUE(all.ready(*handle));
      all.advance(*handle, 20);
      apart[owner].advance(*alone, 20);
      all.keep(*handle, 22);  // of a tree: the row moves
      apart[owner].keep(*alone, 22);
    }
  }
  Work work;
  all.take_work(work);
  EXPECT_EQ(work.moves.size(), 2U * kOwners);
  EXPECT_EQ(work.copies.size(), 2U * kOwners);  // of prompts' last blocks
  for (std::int32_t owner = 0; owner < kOwners; ++owner) {
    Work own;
    BlockOwner{owner, kOwners}.take(work, own);
    Work expected;
    apart[owner].take_work(expected);
    ASSERT_EQ(own.edits.size(), expected.edits.size());
    for (std::size_t i = 0; i < own.edits.size(); ++i) {
      EXPECT_EQ(own.edits[i].sequence, expected.edits[i].sequence);
      EXPECT_EQ(own.edits[i].index, expected.edits[i].index);
      EXPECT_EQ(own.edits[i].block, expected.edits[i].block);
    }
    ASSERT_EQ(own.copies.size(), expected.copies.size());
    for (std::size_t i = 0; i < own.copies.size(); ++i) {
      EXPECT_EQ(own.copies[i].from, expected.copies[i].from);
      EXPECT_EQ(own.copies[i].to, expected.copies[i].to);
    }
    ASSERT_EQ(own.moves.size(), expected.moves.size());
    for (std::size_t i = 0; i < own.moves.size(); ++i) {
      EXPECT_EQ(own.moves[i].from_block, expected.moves[i].from_block);
      EXPECT_EQ(own.moves[i].from_slot, expected.moves[i].from_slot);
      EXPECT_EQ(own.moves[i].to_block, expected.moves[i].to_block);
      EXPECT_EQ(own.moves[i].to_slot, expected.moves[i].to_slot);
    }
  }
}

TEST(OwnedSequences, SiblingsShareWithTheirOwnersPoolAlone) {
  OwnedSequences all(2, 10, kBlock);
  const auto first = all.open(0, 7, 40, 60, {});
  const auto other = all.open(1, 7, 40, 60, {});
  const auto sibling = all.open(0, 7, 40, 60, {});
  EXPECT_TRUE(all.knows(0, 7) && all.knows(1, 7) && !all.knows(0, 8));
  EXPECT_TRUE(all.ready(*first) && all.ready(*other));
  EXPECT_FALSE(all.ready(*sibling)) << "it waits for the prompt";
  all.advance(*other, 40);
  EXPECT_FALSE(all.ready(*sibling)) << "another owner's prompt is nothing to it";
  all.advance(*first, 40);
  EXPECT_TRUE(all.ready(*sibling));
  EXPECT_EQ(all.table(*sibling)[0], all.table(*first)[0]);
}

TEST(OwnedSequences, AllPoolsAreResizedOrNone) {
  OwnedSequences all(2, 10, kBlock);
  const auto large = all.open(1, 0, 16, 16 * 7, {});
  Work work;
  all.take_work(work);
  EXPECT_FALSE(all.resize(7)) << "8 blocks of a pool are in use";
  EXPECT_EQ(all.blocks(), 20);
  EXPECT_TRUE(all.resize(12));
  EXPECT_EQ(all.blocks(), 24);
  all.take_work(work);
  EXPECT_EQ(work.blocks, 12);
  all.close(*large);
  EXPECT_TRUE(all.resize(7));
  EXPECT_EQ(all.blocks(), 14);
}

TEST(OwnedSequences, APromptThatAParcelHasIsNotDroppedToResize) {
  OwnedSequences all(2, 16, kBlock);
  const auto first = all.open(0, 0, 16 * 6, 16 * 6, {});
  EXPECT_TRUE(all.ready(*first));
  all.advance(*first, 16 * 6);
  Work work;
  all.take_work(work);
  const Parcel parcel = all.share(*first);
  EXPECT_EQ(parcel.blocks.size(), 6U);
  all.close(*first);
  const auto other = all.open(0, 1, 16, 16 * 3, {});
  ASSERT_TRUE(other);
  all.take_work(work);
  EXPECT_EQ(all.blocks_used(), 11);
  EXPECT_GT(all.blocks_idle(), 0) << "of the prompt that nobody uses";
  EXPECT_FALSE(all.resize(9)) << "a parcel has 6 of the 11";
  EXPECT_EQ(all.blocks(), 32);
  all.release(parcel);
  EXPECT_TRUE(all.resize(9));
}

TEST(OwnedSequences, ParcelsGoBackToTheirPool) {
  OwnedSequences all(2, 10, kBlock);
  const auto handle = all.open(1, 0, 20, 40, {});
  EXPECT_TRUE(all.ready(*handle));
  all.advance(*handle, 30);
  Work work;
  all.take_work(work);
  const Parcel parcel = all.detach(*handle);
  EXPECT_EQ(parcel.positions, 30);
  for (const std::int32_t block : parcel.blocks) EXPECT_EQ(all.owner_of(block), 1);
  EXPECT_EQ(all.blocks_free(0), 10);
  EXPECT_LT(all.blocks_free(1), 10);
  all.release(parcel);
  EXPECT_EQ(all.blocks_free(1), 10);
}

}  // namespace
}  // namespace paceline::kv
