// KV that ranks store, restore and send from their stores, in a modelled world with real bytes:
// between groups of any degrees what arrives is what was stored, and it takes as long as it should.
#include "runtime/sim/tiers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/roles/kv_share.hpp"
#include "runtime/sim/blocks.hpp"
#include "tests/runtime/sim/scripted_actor.hpp"

namespace paceline::sim {
namespace {

constexpr int kHeads = 4;  // of the model
constexpr int kLayers = 2;
constexpr int kBlock = 16;
constexpr int kBlocks = 6;  // of a rank's KV pool

/// What a model would have in that place of the text's block `index`.
std::int32_t value(int index, int run, int head, int slot) {
  return index << 16 | run << 12 | head << 8 | slot;
}

struct Rank {
  /// Rank `number`, which is `index` of a group of `tp`.
  Rank(World& world, BlockWire& wire, int number, int tp, int index, const kv::StoreSize& size,
       TierOptions options)
      : actor(world),
        shape{kLayers, kHeads / tp, 1, kBlock, DType::f32},
        first_head(index * shape.kv_heads) {
    kv.resize(shape.block_bytes() * kBlocks);
    options.block_bytes = shape.block_bytes();
    tiers = std::make_unique<ModelledTiers>(world, actor.id, number, options);
    store = std::make_unique<kv::Store>(*tiers, size,
                                        [this](const std::string& w) { warned.push_back(w); });
    share = std::make_unique<roles::KvShare>(wire.open(number, actor.id),
                                             engine::KvMemory{shape, kv, nullptr}, index, tp,
                                             roles::Recorder{}, store.get());
  }
  std::int32_t& at(int block, int run, int head, int slot) {
    const std::size_t element =
        (static_cast<std::size_t>(run) * shape.kv_heads + head) * kBlock + slot;
    return *reinterpret_cast<std::int32_t*>(kv.data() + block * shape.block_bytes() + element * 4);
  }
  template <typename Each>
  void for_each(std::span<const std::int32_t> blocks, int first, Each each) {
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      for (int run = 0; run < 2 * kLayers; ++run) {
        for (int head = 0; head < shape.kv_heads; ++head) {
          for (int slot = 0; slot < kBlock; ++slot)
            each(at(blocks[b], run, head, slot),
                 value(first + static_cast<int>(b), run, first_head + head, slot));
        }
      }
    }
  }
  void compute(std::span<const std::int32_t> blocks, int first) {
    for_each(blocks, first, [](std::int32_t& there, std::int32_t expected) { there = expected; });
  }
  /// How many elements of the text's blocks from `first` on are not what was computed.
  int wrong(std::span<const std::int32_t> blocks, int first) {
    int count = 0;
    for_each(blocks, first, [&](const std::int32_t& there, std::int32_t expected) {
      count += there == expected ? 0 : 1;
    });
    return count;
  }
  void forget() { std::fill(kv.begin(), kv.end(), std::byte{0x77}); }

  ScriptedActor actor;
  kernels::KvShape shape;
  int first_head;
  std::vector<std::byte> kv;
  std::vector<std::string> warned;
  std::unique_ptr<ModelledTiers> tiers;
  std::unique_ptr<kv::Store> store;
  std::unique_ptr<roles::KvShare> share;
};

/// Two groups on one node: 2 s of latency, 1 MB a second.
struct TwoGroups {
  TwoGroups(int tp_a, int tp_b, const kv::StoreSize& size, const TierOptions& options = slow())
      : network({.rank = {}, .node = {2, 1e6}, .network = {}}, std::vector<int>(tp_a + tp_b, 0)),
        wire(world, network, {.copies = true}),
        a{0, tp_a},
        b{tp_a, tp_b} {
    for (int rank = 0; rank < tp_a + tp_b; ++rank) {
      const bool in_a = rank < tp_a;
      ranks.push_back(std::make_unique<Rank>(world, wire, rank, in_a ? tp_a : tp_b,
                                             in_a ? rank : rank - tp_a, size, options));
    }
    run(world);
  }
  static TierOptions slow() {
    TierOptions options;
    options.memory = {0, 1e6};
    options.disk_write = {0.5, 1e5};
    options.disk_read = {0.5, 2e5};
    return options;
  }
  std::span<std::unique_ptr<Rank>> of(const policy::GroupRanks& group) {
    return std::span(ranks).subspan(group.leader, group.tp);
  }
  /// Gives turns until nothing is under way any more.
  void rest() {
    for (bool any = true; any;) {
      any = false;
      run(world);
      for (auto& rank : ranks) {
        for (const protocol::KvMoved& moved : rank->share->take_ended()) {
          ended.push_back(moved);
          any = true;
        }
      }
      any = any || world_has_more();
    }
  }
  bool world_has_more() {
    const std::uint64_t turns = world.turns();
    run(world);
    return world.turns() != turns;
  }
  /// Of all ranks that said so of it, whether it is complete; nothing where some did not, or they
  /// differ.
  std::optional<bool> complete(std::uint64_t key, int tp) {
    int yes = 0;
    int no = 0;
    for (const protocol::KvMoved& moved : ended) {
      if (moved.key == key) ++(moved.complete != 0 ? yes : no);
    }
    if (yes == tp && no == 0) return true;
    if (no == tp && yes == 0) return false;
    return std::nullopt;
  }

  World world;
  Network network;
  BlockWire wire;
  policy::GroupRanks a, b;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<protocol::KvMoved> ended;
};

using Blocks = std::vector<std::int32_t>;

TEST(Tiers, WhatAGroupStoresItRestoresIntoOtherBlocks) {
  for (const int tp : {1, 2, 4}) {
    TwoGroups world(tp, 1, {.memory = 8, .disk = 0, .at_once = 2});
    const Blocks from{4, 0, 2}, to{1, 5, 3};
    for (auto& rank : world.of(world.a)) {
      rank->compute(from, 0);
      rank->share->obey(protocol::StoreKv{7, 0, from});
    }
    world.rest();
    EXPECT_EQ(world.complete(7, tp), true);
    world.ended.clear();
    for (auto& rank : world.of(world.a)) {
      rank->forget();
      rank->share->obey(protocol::RestoreKv{7, 0, to});
      EXPECT_GT(rank->wrong(to, 0), 0) << "it takes a while";
    }
    world.rest();
    EXPECT_EQ(world.complete(7, tp), true);
    for (auto& rank : world.of(world.a)) EXPECT_EQ(rank->wrong(to, 0), 0);
  }
}

// Each rank of the one exchanges heads with as many of the other as hold any of its own, out of the
// store, from memory or from a disk below it.
TEST(Tiers, GroupsOfAnyDegreesPullWhatAnotherHasStored) {
  for (const int tp_a : {1, 2, 4}) {
    for (const int tp_b : {1, 2, 4}) {
      for (const bool disk : {false, true}) {
        TwoGroups world(tp_a, tp_b, {.memory = disk ? 4 : 9, .disk = disk ? 20 : 0, .at_once = 2});
        const Blocks from{4, 0, 2}, to{5, 1};
        const protocol::ForeseeKv sooner{{8, 9}};
        for (auto& rank : world.of(world.a)) {
          rank->compute(from, 0);
          rank->share->obey(sooner);
          rank->share->obey(protocol::StoreKv{7, 0, from});
          rank->share->obey(protocol::StoreKv{8, 0, from});
          rank->share->obey(protocol::StoreKv{9, 0, from});
        }
        world.rest();
        EXPECT_EQ(world.complete(7, tp_a), true);
        world.ended.clear();
        for (auto& rank : world.of(world.a)) {
          EXPECT_EQ(rank->store->counts().on_disk > 0, disk);
          rank->forget();
          protocol::MoveKv move;
          move.key = 7;
          move.peer = world.b;
          move.send = 1;
          move.stored = 1;
          move.first_block = 1;
          rank->share->obey(move);
        }
        for (auto& rank : world.of(world.b)) {
          protocol::MoveKv move;
          move.key = 7;
          move.peer = world.a;
          move.blocks = to;
          rank->share->obey(move);
        }
        world.rest();
        EXPECT_EQ(world.complete(7, tp_a + tp_b), true) << tp_a << " to " << tp_b;
        for (auto& rank : world.of(world.b)) EXPECT_EQ(rank->wrong(to, 1), 0);
        for (auto& rank : world.of(world.a)) rank->share->obey(protocol::DropKv{{7, 8, 9}});
        world.rest();
        for (auto& rank : world.of(world.a)) {
          EXPECT_EQ(rank->store->counts().in_memory, 0U);
          EXPECT_EQ(rank->store->counts().on_disk, 0U);
        }
      }
    }
  }
}

TEST(Tiers, APullOfWhatIsNotThereOrDamagedFailsAtBothEnds) {
  for (const bool damaged : {false, true}) {
    TierOptions options = TwoGroups::slow();
    options.damaged = damaged ? 1 : 0;
    TwoGroups world(2, 4, {.memory = 8, .disk = 0, .at_once = 2}, options);
    const Blocks blocks{4, 0, 2};
    for (auto& rank : world.of(world.a)) {
      rank->share->obey(protocol::StoreKv{7, 0, blocks});
      if (!damaged) rank->share->obey(protocol::DropKv{{7}});
    }
    world.rest();
    EXPECT_EQ(world.complete(7, 2), damaged);
    world.ended.clear();
    for (auto& rank : world.of(world.a)) {
      protocol::MoveKv move;
      move.key = 7;
      move.peer = world.b;
      move.send = 1;
      move.stored = 1;
      rank->share->obey(move);
    }
    for (auto& rank : world.of(world.b)) {
      protocol::MoveKv move;
      move.key = 7;
      move.peer = world.a;
      move.blocks = blocks;
      rank->share->obey(move);
    }
    world.rest();
    EXPECT_EQ(world.complete(7, 6), false);
    EXPECT_EQ(world.ranks[0]->warned.size(), damaged ? 1U : 0U);
  }
}

TEST(Tiers, MemoryAndDiskTakeAsLongAsTheirLinks) {
  // A block of a rank is 2 x 2 x 4 x 16 x 4 = 1024 bytes: 1.024 ms to copy, and for the disk half a
  // second and 10.24 ms to write or 5.12 ms to read.
  TwoGroups world(1, 1, {.memory = 8, .disk = 20, .at_once = 1});
  Rank& rank = *world.ranks[0];
  const Blocks blocks{0, 1, 2, 3, 4};
  rank.share->obey(protocol::StoreKv{7, 0, blocks});
  rank.share->obey(protocol::StoreKv{8, 0, blocks});
  world.rest();
  ASSERT_EQ(world.complete(7, 1), true);
  ASSERT_EQ(world.complete(8, 1), true);
  EXPECT_EQ(rank.store->counts().on_disk, 3U) << "seven of ten are left in memory";
  const double stored = rank.actor.turns.back();
  EXPECT_NEAR(stored, 7 * 1.024e-3 + 3 * 0.51024, 5 * 1.024e-3);
  world.ended.clear();
  rank.share->obey(protocol::RestoreKv{8, 0, blocks});
  world.rest();
  EXPECT_EQ(world.complete(8, 1), true);
  EXPECT_NEAR(rank.actor.turns.back() - stored, 3 * 0.50512, 2 * 1.024e-3)
      << "copies from memory go on meanwhile";
}

TEST(Tiers, BlocksThatNobodyLooksAtTakeNoMemory) {
  TierOptions options = TwoGroups::slow();
  std::vector<std::byte> one(1024);
  options.addresses = one;
  options.bytes_per_byte = 1000;
  TwoGroups world(1, 1, {.memory = 1 << 30, .disk = 1 << 30, .at_once = 2}, options);
  Rank& rank = *world.ranks[0];
  const Blocks blocks{4, 0, 2};
  rank.forget();
  rank.share->obey(protocol::StoreKv{7, 0, blocks});
  world.rest();
  rank.share->obey(protocol::RestoreKv{7, 0, blocks});
  world.rest();
  EXPECT_EQ(world.complete(7, 2), true) << "twice";
  EXPECT_EQ(one, std::vector<std::byte>(1024));
  EXPECT_NEAR(rank.actor.turns.back(), 2 * 3 * 1.024, 1e-9);
}

}  // namespace
}  // namespace paceline::sim
