// Transfer costs, measured over a transport whose latency and bandwidth are known.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "runtime/costs/transfer_measurement.hpp"

namespace paceline {
namespace {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return time; }
  double time = 0;
};

/// What is received is there after a while; what is sent is gone at once.
class ModelledTransport final : public BlockTransport {
 public:
  explicit ModelledTransport(ManualClock& clock) : clock_(clock) {}
  void register_memory(std::span<std::byte>) override {}
  void unregister_memory(std::span<std::byte>) override {}
  Ticket send(int to, std::uint64_t key,
              std::span<const std::span<const std::byte>> pieces) override {
    return begin(to, key, bytes_of(pieces), 0);
  }
  Ticket receive(int from, std::uint64_t key,
                 std::span<const std::span<std::byte>> pieces) override {
    const double bytes = bytes_of(pieces);
    double seconds = latency + bytes / bandwidth;
    if (disturb_every > 0 && ++received % disturb_every == 0) seconds *= 50;
    return begin(from, key, bytes, seconds);
  }
  [[nodiscard]] TransferState state(Ticket ticket) const override {
    if (fails) return TransferState::failed;
    return clock_.time >= ends_[ticket] ? TransferState::done : TransferState::pending;
  }
  [[nodiscard]] std::string failure(Ticket) const override { return ""; }
  [[nodiscard]] double seconds(Ticket) const override { return 0; }
  void refuse(int, std::uint64_t) override {}
  void cancel(Ticket) override {}
  [[nodiscard]] Traffic traffic() const override { return {}; }

  double latency = 2e-3;
  double bandwidth = 1e8;
  int disturb_every = 0;
  int received = 0;
  bool fails = false;
  std::map<std::uint64_t, int> keys;  ///< how often each was used
  double largest = 0;                 ///< bytes of a transfer

 private:
  static double bytes_of(const auto& pieces) {
    std::size_t sum = 0;
    for (const auto& piece : pieces) sum += piece.size();
    return static_cast<double>(sum);
  }
  Ticket begin(int peer, std::uint64_t key, double bytes, double seconds) {
    EXPECT_EQ(peer, 3);
    ++keys[key];
    largest = std::max(largest, bytes);
    ends_.push_back(clock_.time + seconds);
    return ends_.size() - 1;
  }
  ManualClock& clock_;
  std::vector<double> ends_;
};

/// Sleeping is what takes time here.
class SleepingMailbox final : public Mailbox {
 public:
  explicit SleepingMailbox(ManualClock& clock) : clock_(clock) {}
  void send(Address, std::span<const std::byte>) override {}
  void flush() override {}
  void deliver(std::span<const Address>) override {}
  std::optional<Envelope> poll() override { return std::nullopt; }
  bool wait(double) override {
    clock_.time += 1e-6;
    return true;
  }
  void wake() override {}
  [[nodiscard]] bool full(Address) const override { return false; }
  [[nodiscard]] Traffic traffic() const override { return {}; }

 private:
  ManualClock& clock_;
};

struct World {
  explicit World(int blocks = 100) : memory(shape.block_bytes() * blocks) {
    end.share = &share.emplace(transport, engine::KvMemory{shape, memory, {}}, 0, 1);
    end.block_bytes = static_cast<double>(shape.block_bytes());
    end.peer = {3, 1};
    end.receives = true;
    end.blocks = blocks;
  }
  std::optional<TransferCosts> measure(double seconds = 10) {
    return measure_transfers(end, mailbox, clock, seconds, sum);
  }
  ManualClock clock;
  ModelledTransport transport{clock};
  SleepingMailbox mailbox{clock};
  kernels::KvShape shape{2, 2, 32, 16, DType::bf16};
  std::vector<std::byte> memory;
  std::optional<roles::KvShare> share;
  TransferEnd end;
  /// Of this rank alone.
  SumOverRanks sum = [](std::span<double>) {};
};

TEST(TransferMeasurement, FindsLatencyAndBandwidth) {
  World world;
  const std::optional<TransferCosts> costs = world.measure();
  ASSERT_TRUE(costs);
  EXPECT_NEAR(costs->latency, 2e-3, 2e-5);
  EXPECT_NEAR(costs->bandwidth, 1e8, 1e6);
  for (const auto& [key, times] : world.transport.keys) {
    EXPECT_EQ(times, 1) << "a key names one transfer";
    EXPECT_GE(key, std::uint64_t{1} << 32U) << "the run's own moves count from 1";
  }
}

TEST(TransferMeasurement, BurstsOfOtherWorkDoNotCount) {
  World world;
  world.transport.disturb_every = 3;
  const std::optional<TransferCosts> costs = world.measure();
  ASSERT_TRUE(costs);
  EXPECT_NEAR(costs->latency, 2e-3, 2e-5);
  EXPECT_NEAR(costs->bandwidth, 1e8, 1e6);
}

TEST(TransferMeasurement, KeepsToItsTimeButForOneOfEachSize) {
  World world;
  ASSERT_TRUE(world.measure(0));
  EXPECT_EQ(world.transport.keys.size(), 4U);  // the first of each size connects
  World longer;
  const double most = longer.end.block_bytes * 64 / longer.transport.bandwidth;
  ASSERT_TRUE(longer.measure(0.05));
  EXPECT_LT(longer.clock.time, 0.05 + 2 * (2e-3 + most));
}

TEST(TransferMeasurement, APoolOfOneBlockWillDo) {
  World world(1);
  const std::optional<TransferCosts> costs = world.measure();
  ASSERT_TRUE(costs);
  EXPECT_NEAR(costs->latency + world.end.block_bytes / costs->bandwidth,
              2e-3 + world.end.block_bytes / 1e8, 1e-5);
}

TEST(TransferMeasurement, WhoSendsOrLooksOnGetsWhatOthersMeasured) {
  for (const bool sends : {true, false}) {
    World world;
    world.end.receives = false;
    if (!sends) world.end.share = nullptr;
    // Another rank received: 1 ms for each block of 100 bytes.
    int moves = 0;
    world.sum = [&](std::span<double> all) {
      EXPECT_EQ(all[2], 0);
      const double blocks = moves++ % 2 == 0 ? 1 : 64;
      all[0] += 1e-3 * blocks;
      all[1] += 100 * blocks;
      all[2] += 1;
    };
    const std::optional<TransferCosts> costs = world.measure();
    ASSERT_TRUE(costs);
    EXPECT_NEAR(costs->bandwidth, 1e5, 1);
    EXPECT_NEAR(costs->latency, 0, 1e-9);
    EXPECT_EQ(world.transport.keys.empty(), !sends);
  }
}

TEST(TransferMeasurement, NothingIsSaidWhereNobodyReceivesOrATransferFails) {
  World alone;
  alone.end.share = nullptr;
  EXPECT_FALSE(alone.measure());
  World failing;
  failing.transport.fails = true;
  EXPECT_FALSE(failing.measure());
  EXPECT_EQ(failing.transport.keys.size(), 1U);
}

}  // namespace
}  // namespace paceline
