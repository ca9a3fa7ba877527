// A rank's share of KV that goes while transfers do.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/roles/group.hpp"

namespace paceline::roles {
namespace {

/// Its tickets stay pending until they are cancelled, or for ever.
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
    return cancelled && heeds ? TransferState::failed : TransferState::pending;
  }
  [[nodiscard]] std::string failure(Ticket) const override { return ""; }
  [[nodiscard]] double seconds(Ticket) const override { return 0; }
  void cancel(Ticket) override { cancelled = true; }
  [[nodiscard]] Traffic traffic() const override { return {}; }

  bool heeds = true;
  bool faulty = false;
  bool cancelled = false;
  bool registered = false;
};

/// Whether memory is there after its share has gone, a move being under way, and everybody else.
bool kept(StuckTransport& transport) {
  const kernels::KvShape shape{2, 2, 32, 16, DType::bf16};
  auto memory = std::make_shared<std::vector<std::byte>>(shape.block_bytes() * 2);
  const std::weak_ptr<void> watched = memory;
  {
    KvShare share(transport, engine::KvMemory{shape, *memory, memory}, 0, 1);
    memory.reset();
    MoveKv move;
    move.key = 1;
    move.peer = {3, 1};
    move.blocks = {0, 1};
    share.move(move);
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

}  // namespace
}  // namespace paceline::roles
