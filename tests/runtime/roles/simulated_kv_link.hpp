// KV that moves between the caches of BlockCheckingRunners, later than it was asked for, and at
// times not at all.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "runtime/roles/group.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"

namespace paceline::roles::test {

/// What all links share: the moves under way.
class KvWire {
 public:
  explicit KvWire(std::uint64_t seed) : seed_(seed), random_(seed) {}
  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  struct End {
    engine::BlockCheckingRunner* runner = nullptr;
    std::vector<std::int32_t> blocks;
    bool told = false;
  };
  struct Transfer {
    End sender, receiver;
    int delay = 0;
    bool fails = false;
    bool over = false;
  };
  void post(std::uint64_t key, bool send, End end) {
    Transfer& t = transfers_[key];
    (send ? t.sender : t.receiver) = std::move(end);
    t.delay = static_cast<int>(random_() % 12);
    t.fails = random_() % 8 == 0;
  }
  std::optional<bool> ended(std::uint64_t key, bool sender) {
    Transfer& t = transfers_.at(key);
    if (!t.over) {
      if (t.sender.runner == nullptr || t.receiver.runner == nullptr || t.delay-- > 0)
        return std::nullopt;
      EXPECT_EQ(t.sender.blocks.size(), t.receiver.blocks.size());
      for (std::size_t b = 0; b < t.sender.blocks.size() && !t.fails; ++b) {
        const auto from = t.sender.runner->block(t.sender.blocks[b]);
        std::copy(from.begin(), from.end(), t.receiver.runner->block(t.receiver.blocks[b]).begin());
      }
      t.over = true;
      ++transfers;
    }
    (sender ? t.sender : t.receiver).told = true;
    const bool complete = !t.fails;
    if (t.sender.told && t.receiver.told) transfers_.erase(key);
    return complete;
  }

  int transfers = 0;

 private:
  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::map<std::uint64_t, Transfer> transfers_;
};

class SimulatedKvLink final : public KvLink {
 public:
  SimulatedKvLink(KvWire& wire, engine::BlockCheckingRunner& runner)
      : wire_(wire), runner_(runner) {}
  void move(const MoveKv& command) override {
    sends_[command.key] = command.send != 0;
    wire_.post(command.key, command.send != 0, {&runner_, command.blocks});
  }
  std::optional<bool> ended(std::uint64_t key) override { return wire_.ended(key, sends_.at(key)); }
  void heard(const KvMoved&) override {}

 private:
  KvWire& wire_;
  engine::BlockCheckingRunner& runner_;
  std::map<std::uint64_t, bool> sends_;
};

}  // namespace paceline::roles::test
