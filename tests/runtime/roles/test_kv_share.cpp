// A rank's share of KV that goes while transfers do, and what a group hears of its members' shares.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/roles/kv_exchange.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/kv/scripted_tiers.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles {
namespace {

/// Its tickets stay pending until they are cancelled, or for ever, or until all is said to be done.
class StuckTransport final : public BlockTransport {
 public:
  void register_memory(std::span<std::byte> region) override { regions.push_back(region.size()); }
  void unregister_memory(std::span<std::byte> region) override {
    regions.erase(std::find(regions.begin(), regions.end(), region.size()));
  }
  Ticket send(int to, std::uint64_t, std::span<const std::span<const std::byte>> pieces) override {
    for (const auto piece : pieces) sent[to].push_back(piece);
    return 1;
  }
  Ticket receive(int from, std::uint64_t, std::span<const std::span<std::byte>> pieces) override {
    for (const auto piece : pieces) received[from].push_back(piece);
    return 1;
  }
  void refuse(int to, std::uint64_t key) override { refused.emplace_back(to, key); }
  [[nodiscard]] TransferState state(Ticket) const override {
    if (faulty) throw std::runtime_error("the transport has a fault");
    if (done) return TransferState::done;
    return cancelled && heeds ? TransferState::failed : TransferState::pending;
  }
  [[nodiscard]] std::string failure(Ticket) const override { return ""; }
  [[nodiscard]] double seconds(Ticket) const override { return 0; }
  void cancel(Ticket) override { cancelled = true; }
  [[nodiscard]] Traffic traffic() const override { return {}; }

  bool heeds = true;
  bool faulty = false;
  bool done = false;
  bool cancelled = false;
  std::vector<std::size_t> regions;  ///< bytes of each that is registered
  std::vector<std::pair<int, std::uint64_t>> refused;
  std::map<int, std::vector<std::span<const std::byte>>> sent, received;  ///< pieces by rank
};

protocol::MoveKv move_of(std::uint64_t key) {
  protocol::MoveKv move;
  move.key = key;
  move.peer = {3, 1};
  move.blocks = {0, 1};
  return move;
}

/// Whether memory is there after its share has gone, a move being under way, and everybody else.
bool kept(StuckTransport& transport) {
  const kernels::KvShape shape{2, 2, 32, 16, DType::bf16};
  auto memory = std::make_shared<std::vector<std::byte>>(shape.block_bytes() * 2);
  const std::weak_ptr<void> watched = memory;
  {
    KvShare share(transport, engine::KvMemory{shape, *memory, memory}, 0, 1);
    memory.reset();
    share.obey(move_of(1));
  }
  EXPECT_TRUE(transport.cancelled);
  EXPECT_EQ(!transport.regions.empty(), !watched.expired());
  return !watched.expired();
}

TEST(KvShare, GivesUpWhatIsUnderWay) {
  StuckTransport transport;
  EXPECT_FALSE(kept(transport));
}

/// Notes how much is registered while a step runs.
class NotingRunner final : public engine::StepRunner {
 public:
  explicit NotingRunner(const StuckTransport& transport) : transport_(transport) {}
  engine::StepResult run(const engine::Step&) override {
    during = transport_.regions;
    return {};
  }
  std::vector<std::size_t> during;

 private:
  const StuckTransport& transport_;
};

// What a device of the network has registered it may write to: nothing that is given back is.
TEST(KvShare, RegistersWhatIsThere) {
  StuckTransport transport;
  NotingRunner runner(transport);
  const kernels::KvShape shape{2, 2, 32, 16, DType::bf16};
  const std::size_t block = shape.block_bytes();
  std::vector<std::byte> memory(block * 5);
  {
    KvShare share(transport, engine::KvMemory{shape, std::span(memory).first(2 * block), {}}, 0, 1);
    engine::Step step;
    const auto resize = [&](std::int32_t blocks) {
      step.kv.blocks = blocks;
      share.shrink_before(step.kv);
      (void)runner.run(step);
      share.grow_after(step.kv);
    };
    using Sizes = std::vector<std::size_t>;
    for (int time = 0; time < 2; ++time) {
      resize(5);
      EXPECT_EQ(runner.during, Sizes({2 * block}));
      EXPECT_EQ(transport.regions, Sizes({2 * block, 3 * block}));
      resize(0);  // as it was
      EXPECT_EQ(transport.regions, Sizes({2 * block, 3 * block}));
      resize(2);
      EXPECT_EQ(runner.during, Sizes({2 * block}));
      EXPECT_EQ(transport.regions, Sizes({2 * block}));
    }
    resize(4);
    EXPECT_THROW(resize(3), std::logic_error);
  }
  EXPECT_TRUE(transport.regions.empty());
}

// The transport's fault may be what the run ends of: its shards are yet to be closed.
TEST(KvShare, MayGoWithAFaultyTransport) {
  StuckTransport transport;
  transport.faulty = true;
  EXPECT_TRUE(kept(transport));
}

TEST(KvShare, WaitsForNoPeerForEver) {
  StuckTransport transport;
  transport.heeds = false;
  EXPECT_TRUE(kept(transport));
}

TEST(KvShare, WithoutAStoreNothingIsStoredAndNobodyWaits) {
  StuckTransport transport;
  const kernels::KvShape shape{2, 2, 32, 16, DType::bf16};
  std::vector<std::byte> memory(shape.block_bytes() * 2);
  KvShare share(transport, {shape, memory, nullptr}, 1, 2);
  share.obey(protocol::StoreKv{1, 0, {0, 1}});
  EXPECT_EQ(share.ended(1), false);
  share.obey(protocol::RestoreKv{1, 0, {0, 1}});
  EXPECT_EQ(share.ended(1), false);
  protocol::MoveKv move;
  move.key = 2;
  move.peer = {4, 4};
  move.send = 1;
  move.stored = 1;
  share.obey(move);
  EXPECT_EQ(share.ended(2), false);
  const std::vector<std::pair<int, std::uint64_t>> theirs{{6, 2}, {7, 2}};
  EXPECT_EQ(transport.refused, theirs) << "each rank that holds heads of this one's";
}

// Every rank has latent vectors whole: each receiver gets them from one, and no sender has more to
// do than it must.
TEST(KvShare, LatentVectorsGoToEachRankOnce) {
  const kernels::KvShape shape{2, 1, 40, 16, DType::bf16, 32};
  for (const auto& [here, there] : {std::pair{1, 1}, {1, 4}, {4, 1}, {2, 4}, {4, 2}, {4, 4}}) {
    std::map<int, std::vector<int>> sent;      // receivers by sender
    std::map<int, std::vector<int>> expected;  // senders by receiver
    for (const bool sends : {true, false}) {
      for (int rank = 0; rank < (sends ? here : there); ++rank) {
        StuckTransport transport;
        std::vector<std::byte> memory(shape.block_bytes() * 2);
        KvShare share(transport, {shape, memory, nullptr}, rank, sends ? here : there);
        protocol::MoveKv move;
        move.key = 2;
        move.peer = {10, sends ? there : here};
        move.send = sends ? 1 : 0;
        move.stored = 1;  // without a store it says so to those whom it would exchange with
        share.obey(move);
        EXPECT_EQ(share.ended(2), false);
        for (const auto& [peer, key] : transport.refused)
          (sends ? sent : expected)[rank].push_back(peer - 10);
      }
    }
    for (int receiver = 0; receiver < there; ++receiver) {
      ASSERT_EQ(expected[receiver].size(), 1U);
      const std::vector<int>& of_sender = sent[expected[receiver].front()];
      EXPECT_EQ(std::count(of_sender.begin(), of_sender.end(), receiver), 1);
    }
    std::size_t all = 0;
    for (const auto& [sender, receivers] : sent) {
      all += receivers.size();
      EXPECT_LE(receivers.size(), static_cast<std::size_t>((there + here - 1) / here));
    }
    EXPECT_EQ(all, static_cast<std::size_t>(there));
  }
}

// Of ranks that have the KV of their own requests the owner exchanges all heads, and each rank
// hears of each command.
TEST(KvShare, TheOwnerAloneExchangesWhatItHasWhole) {
  const kernels::KvShape shape{2, 4, 32, 16, DType::bf16};
  for (int rank = 0; rank < 2; ++rank) {
    StuckTransport transport;
    std::vector<std::byte> memory(shape.block_bytes() * 3);
    KvShare share(transport, {shape, memory, nullptr}, rank, 2, {}, nullptr, 10);
    protocol::MoveKv move;
    move.key = 2;
    move.peer = {20, 4};  // whose ranks have a head each
    move.send = 1;
    move.blocks = {1, 5};  // blocks 0 and 2 of rank 1
    move.owner = 1;
    share.obey(move);
    if (rank == 0) {
      EXPECT_EQ(share.ended(2), true);
      EXPECT_TRUE(transport.sent.empty());
    } else {
      EXPECT_EQ(share.ended(2), std::nullopt);
      ASSERT_EQ(transport.sent.size(), 4U);
      for (int head = 0; head < 4; ++head) {
        const auto& pieces = transport.sent.at(20 + head);
        ASSERT_EQ(pieces.size(), 8U);  // of two blocks, k and v of two layers
        EXPECT_EQ(pieces.front().data(), memory.data() + head * shape.vector_bytes());
        EXPECT_EQ(pieces[4].data(),
                  memory.data() + 2 * shape.block_bytes() + head * shape.vector_bytes());
      }
      transport.done = true;
      EXPECT_EQ(share.ended(2), true);
      transport.done = false;
    }
    // KV that rank 1 stores comes to blocks of rank 0; it has no store, and says so.
    share.obey(protocol::RestoreKv{3, 0, {0, 4}, 1});
    if (rank == 0) {
      EXPECT_EQ(share.ended(3), std::nullopt);
      ASSERT_EQ(transport.received.size(), 1U);
      ASSERT_EQ(transport.received.at(11).size(), 2U);
      EXPECT_EQ(transport.received.at(11)[1].data(), memory.data() + 2 * shape.block_bytes());
      EXPECT_EQ(transport.received.at(11)[1].size(), shape.block_bytes());
    } else {
      EXPECT_EQ(share.ended(3), false);
      const std::vector<std::pair<int, std::uint64_t>> theirs{{10, 3}};
      EXPECT_EQ(transport.refused, theirs);
    }
    share.obey(protocol::StoreKv{4, 0, {0}});  // a block of rank 0, which has no store
    EXPECT_EQ(share.ended(4), rank == 1);
    transport.done = true;
  }
}

TEST(KvMove, GoesThroughItsStatesInOrder) {
  KvMove move;
  EXPECT_FALSE(move.share_ended(4, true)) << "none is in flight";
  EXPECT_THROW(move.prepare_again(), std::logic_error);
  move.post({4, 2});
  EXPECT_THROW(move.post({4, 2}), std::logic_error);
  EXPECT_THROW(move.release(), std::logic_error);
  EXPECT_FALSE(move.share_ended(5, true));
  EXPECT_FALSE(move.share_ended(5, false));
  EXPECT_FALSE(move.share_ended(6, false)) << "it has no share";
  EXPECT_TRUE(move.share_ended(4, true));
  EXPECT_TRUE(move.complete) << "a rank's share ends once";
  move.prepare_again();
  move.post({4, 1});
  EXPECT_TRUE(move.share_ended(4, false));
  EXPECT_FALSE(move.complete);
  move.release();
  EXPECT_THROW(move.release(), std::logic_error);
}

// A member that drafted before may have sent anything, and that may arrive when it no longer does.
TEST(KvExchange, WhatAMemberSaysOfAnUnknownMoveIsLetBe) {
  StuckTransport transport;
  test::Post post;
  test::SimulatedMailbox mailbox(post, {0});
  engine::BlockCheckingRunner runner(8, 16, 40);
  const kernels::KvShape shape{2, 2, 32, 16, DType::bf16};
  std::vector<std::byte> memory(shape.block_bytes() * 8);
  KvShare share(transport, {shape, memory, nullptr}, 0, 2);
  Group group(mailbox, runner, share, {1}, 0);
  engine::Batcher batcher({.kv_blocks = 8}, {}, {}, nullptr);
  KvExchange exchange(mailbox, batcher, group, {0, 2}, {}, 16);
  Admission request{.trajectory = {}, .prompt = std::vector<TokenId>(40), .noise = {}, .until = 50};
  ASSERT_TRUE(batcher.admit(request));
  exchange.fetch({}, {1, {3, 1}, 32});
  EXPECT_TRUE(exchange.arriving({}));
  EXPECT_FALSE(exchange.share_ended(1, {7, 0}));
  transport.done = true;
  EXPECT_FALSE(exchange.settle()) << "the member's share is not there yet";
  EXPECT_TRUE(exchange.share_ended(1, {1, 1})) << "of another move it said that it had failed";
  EXPECT_EQ(exchange.fetched(), 32U);
  EXPECT_TRUE(exchange.idle());
  EXPECT_FALSE(exchange.share_ended(1, {1, 1}));
}

/// A rank of a group with a store of one-number blocks, which moves when a test says so.
struct StoringRank {
  explicit StoringRank(int blocks)
      : tiers(blocks, 0),
        store(tiers, {blocks, 0, 1}, [](const std::string&) {}),
        share(transport, {kShape, memory, nullptr}, 0, 2, {}, &store) {}
  std::uint64_t& at(int block) {
    return *reinterpret_cast<std::uint64_t*>(&memory[block * kShape.block_bytes()]);
  }
  void rest() {
    while (tiers.end_one(false)) store.settle();
  }
  static constexpr kernels::KvShape kShape{1, 2, 32, 16, DType::bf16};
  StuckTransport transport;
  std::vector<std::byte> memory = std::vector<std::byte>(kShape.block_bytes() * 3);
  kv::test::ScriptedTiers tiers;
  kv::Store store;
  KvShare share;
};

// The leader's commands are carried out by all, in their order, and end when all have said so.
TEST(Group, StoresAndRestoresWithItsMembers) {
  test::Post post;
  test::SimulatedMailbox leaders(post, {0});
  test::SimulatedMailbox members(post, {1});
  engine::BlockCheckingRunner runner(8, 16, 40);
  StoringRank first(3), second(2);  // the member has no room for three blocks
  Group group(leaders, runner, first.share, {1}, 0);
  Member member(members, runner, second.share, 0, 0);
  std::map<std::uint64_t, bool> members_share;  // by key, whether its end was complete
  const auto rest = [&] {
    for (int i = 0; i < 3; ++i) {
      member.turn();
      first.rest();
      second.rest();
      while (const auto envelope = leaders.poll()) {
        const auto moved = std::get<protocol::KvMoved>(protocol::decode(envelope->bytes));
        members_share[moved.key] = moved.complete != 0;
      }
    }
  };
  const auto ended = [&](std::uint64_t key) {
    return first.share.ended(key).value() && members_share.at(key);
  };
  for (StoringRank* rank : {&first, &second}) {
    for (int block = 0; block < 3; ++block) rank->at(block) = 10 + block;
  }
  group.command(protocol::StoreKv{5, 0, {2, 0}});
  EXPECT_EQ(first.share.ended(5), std::nullopt);
  rest();
  EXPECT_TRUE(ended(5));
  EXPECT_THROW((void)first.share.ended(5), std::logic_error) << "it is forgotten";
  for (StoringRank* rank : {&first, &second}) rank->at(1) = 0;
  group.command(protocol::RestoreKv{5, 1, {1}});
  rest();
  EXPECT_TRUE(ended(5));
  EXPECT_EQ(first.at(1), 10U) << "the second of the blocks";
  EXPECT_EQ(second.at(1), 10U);

  group.command(protocol::StoreKv{6, 0, {0}});
  rest();
  EXPECT_FALSE(ended(6)) << "the member had no room";
  group.command(protocol::ForeseeKv{{6, 5}});
  group.command(protocol::StoreKv{6, 0, {0}});
  rest();
  EXPECT_TRUE(ended(6)) << "it is needed sooner than what the member has lost";
  EXPECT_TRUE(first.store.has(5));
  EXPECT_FALSE(second.store.has(5));
  group.command(protocol::RestoreKv{5, 0, {0, 1}});
  rest();
  EXPECT_FALSE(ended(5)) << "a share of it is not there";
  group.command(protocol::DropKv{{5}});
  group.command(protocol::DropKv{{6}});
  rest();
  EXPECT_EQ(first.store.counts().in_memory, 0U);
  EXPECT_EQ(second.store.counts().in_memory, 0U);
}

}  // namespace
}  // namespace paceline::roles
