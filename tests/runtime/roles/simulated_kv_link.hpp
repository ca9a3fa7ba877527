// KV that moves between the caches of BlockCheckingRunners and in and out of their stores, later
// than it was asked for, and at times not at all.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

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
    std::vector<std::int32_t> blocks = {};
    bool told = false;
    std::vector<std::vector<TokenId>> stored = {};  ///< in place of blocks
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
    t.delay = delay();
    t.fails = t.fails || fails();
  }
  /// There is nothing to send.
  void refuse(std::uint64_t key, End end) {
    end.stored.resize(1);
    post(key, true, std::move(end));
    transfers_[key].fails = true;
  }
  std::optional<bool> ended(std::uint64_t key, bool sender) {
    Transfer& t = transfers_.at(key);
    if (!t.over) {
      if (t.sender.runner == nullptr || t.receiver.runner == nullptr || t.delay-- > 0)
        return std::nullopt;
      EXPECT_TRUE(t.fails ||
                  t.sender.blocks.size() + t.sender.stored.size() == t.receiver.blocks.size());
      for (std::size_t b = 0; b < t.receiver.blocks.size() && !t.fails; ++b) {
        const std::span<const TokenId> from = t.sender.stored.empty()
                                                  ? t.sender.runner->block(t.sender.blocks[b])
                                                  : std::span<const TokenId>(t.sender.stored[b]);
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

  /// How many looks until something in a store is done.
  int delay() { return static_cast<int>(random_() % 12); }
  /// Whether it is not done then.
  bool fails() { return random_() % 8 == 0; }

  int transfers = 0;
  int restored = 0;

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
    if (command.stored != 0) {
      const auto at = stored_.find(command.origin);
      if (at == stored_.end()) {
        wire_.refuse(command.key, {&runner_});
        return;
      }
      const Entry& entry = at->second;
      wire_.post(command.key, true,
                 {&runner_, {}, false, {entry.begin() + command.first_block, entry.end()}});
      return;
    }
    wire_.post(command.key, command.send != 0, {&runner_, command.blocks});
  }
  void store(const StoreKv& command) override {
    Entry& entry = stored_[command.key];
    entry.resize(command.first_block);
    for (const std::int32_t block : command.blocks) {
      const auto from = runner_.block(block);
      entry.emplace_back(from.begin(), from.end());
    }
    const bool fails = wire_.fails();
    if (fails) stored_.erase(command.key);
    under_way_[command.key] = {wire_.delay(), !fails, {}, 0};
  }
  void restore(const RestoreKv& command) override {
    const bool there = stored_.contains(command.key) && !wire_.fails();
    under_way_[command.key] = {wire_.delay(), there, command.blocks, command.first_block};
  }
  void drop(std::uint64_t key) override { stored_.erase(key); }
  void foresee(std::span<const std::uint64_t>) override {}
  void settle() override {}
  std::optional<bool> ended(std::uint64_t key) override {
    const auto at = under_way_.find(key);
    if (at == under_way_.end()) return wire_.ended(key, sends_.at(key));
    UnderWay& under_way = at->second;
    if (under_way.delay-- > 0) return std::nullopt;
    const bool complete = under_way.complete && stored_.contains(key);
    for (std::size_t b = 0; b < under_way.blocks.size() && complete; ++b) {
      const auto& from = stored_[key].at(under_way.first_block + b);
      std::copy(from.begin(), from.end(), runner_.block(under_way.blocks[b]).begin());
    }
    wire_.restored += complete && !under_way.blocks.empty() ? 1 : 0;
    under_way_.erase(at);
    return complete;
  }
  void heard(const KvMoved&) override {}

 private:
  KvWire& wire_;
  engine::BlockCheckingRunner& runner_;
  std::map<std::uint64_t, bool> sends_;
  using Entry = std::vector<std::vector<TokenId>>;  ///< [blocks]
  std::map<std::uint64_t, Entry> stored_;
  struct UnderWay {
    int delay = 0;
    bool complete = true;
    std::vector<std::int32_t> blocks;  ///< to be filled; none: it is stored
    std::int32_t first_block = 0;
  };
  std::map<std::uint64_t, UnderWay> under_way_;
};

}  // namespace paceline::roles::test
