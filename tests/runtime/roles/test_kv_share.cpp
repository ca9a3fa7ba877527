// A rank's share of KV that goes while transfers do, and what a group hears of its members' shares.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/roles/group.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles {
namespace {

/// Its tickets stay pending until they are cancelled, or for ever, or until all is said to be done.
class StuckTransport final : public BlockTransport {
 public:
  void register_memory(std::span<std::byte>) override { registered = true; }
  void unregister_memory(std::span<std::byte>) override { registered = false; }
  Ticket send(int, std::uint64_t, std::span<const std::span<const std::byte>>) override {
    return 1;
  }
  Ticket receive(int, std::uint64_t, std::span<const std::span<std::byte>>) override { return 1; }
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
  bool registered = false;
};

MoveKv move_of(std::uint64_t key) {
  MoveKv move;
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
    share.move(move_of(1));
  }
  EXPECT_TRUE(transport.cancelled);
  EXPECT_EQ(transport.registered, !watched.expired());
  return !watched.expired();
}

TEST(KvShare, GivesUpWhatIsUnderWay) {
  StuckTransport transport;
  EXPECT_FALSE(kept(transport));
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

// A member that drafted before may have sent anything, and that may arrive when it no longer does.
TEST(Group, WhatAMemberSaysOfAnUnknownMoveIsLetBe) {
  StuckTransport transport;
  test::Post post;
  test::SimulatedMailbox mailbox(post, {0});
  engine::BlockCheckingRunner runner(8, 16, 40);
  const kernels::KvShape shape{2, 2, 32, 16, DType::bf16};
  std::vector<std::byte> memory(shape.block_bytes() * 2);
  KvShare share(transport, {shape, memory, nullptr}, 0, 2);
  Group group(mailbox, runner, share, {1}, 0);
  EXPECT_NO_THROW(group.heard({7, 0}));
  group.move(move_of(1));
  EXPECT_NO_THROW(group.heard({7, 0}));
  transport.done = true;
  EXPECT_EQ(group.ended(1), std::nullopt) << "the member's share is not there yet";
  group.heard({1, 1});
  EXPECT_EQ(group.ended(1), true) << "of another move it said that it had failed";
  EXPECT_NO_THROW(group.heard({1, 1}));
}

}  // namespace
}  // namespace paceline::roles
