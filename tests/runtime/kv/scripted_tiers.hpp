// Tiers whose blocks are numbers, and whose jobs end when a test says so.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/kv/tier_device.hpp"

namespace paceline::kv::test {

class ScriptedTiers final : public TierDevice {
 public:
  using Value = std::uint64_t;
  ScriptedTiers(int units, int slots) : memory_(units), disk_(slots), writers_(units) {}

  void start(TierJob job) override {
    EXPECT_FALSE(job.blocks.empty());
    for (std::size_t i = 0; i < job.blocks.size(); ++i) {
      const TierJob::Block& block = job.blocks[i];
      if (uses_disk(job)) {
        EXPECT_EQ(block.slot, job.blocks[0].slot + static_cast<int>(i));
      }
      if (job.kind == TierJob::Kind::take_in || job.kind == TierJob::Kind::come_up) {
        EXPECT_EQ(writers_.at(block.unit)++, 0) << "two jobs write a unit";
      } else if (job.kind != TierJob::Kind::give_out_disk) {
        EXPECT_EQ(writers_.at(block.unit), 0) << "a unit is read that is being written";
      }
    }
    (uses_disk(job) ? disk_jobs_ : copies_).push_back(std::move(job));
  }
  std::optional<TierJob> ended() override {
    if (ended_.empty()) return std::nullopt;
    TierJob job = std::move(ended_.front());
    ended_.pop_front();
    return job;
  }
  std::span<std::byte> unit(std::int32_t unit) override {
    return {reinterpret_cast<std::byte*>(&memory_.at(unit)), sizeof(Value)};
  }
  void trim(std::int32_t units) override { end = units; }
  std::shared_ptr<void> memory() override { return nullptr; }

  /// Ends the next job of the disk, or the next copy. False: there is none.
  bool end_one(bool disk) {
    auto& jobs = disk ? disk_jobs_ : copies_;
    if (jobs.empty()) return false;
    TierJob job = std::move(jobs.front());
    jobs.pop_front();
    perform(job);
    ended_.push_back(std::move(job));
    return true;
  }
  [[nodiscard]] const std::deque<TierJob>& disk_jobs() const { return disk_jobs_; }
  [[nodiscard]] bool busy() const { return !disk_jobs_.empty() || !copies_.empty(); }

  Value& in_memory(int unit) { return memory_.at(unit); }
  Value& on_disk(int slot) { return disk_.at(slot); }
  bool disk_fails = false;
  int end = 0;  ///< what was last said to trim()

 private:
  static bool uses_disk(const TierJob& job) {
    return job.kind == TierJob::Kind::go_down || job.kind == TierJob::Kind::come_up ||
           job.kind == TierJob::Kind::give_out_disk;
  }
  void perform(TierJob& job) {
    using enum TierJob::Kind;
    if (uses_disk(job) && disk_fails) job.failure = "the disk has gone";
    for (TierJob::Block& block : job.blocks) {
      auto* const outside = reinterpret_cast<Value*>(block.outside);
      if (job.kind == take_in || job.kind == come_up) --writers_.at(block.unit);
      if (!job.failure.empty()) {
        block.good = job.kind == go_down;
        continue;
      }
      if (job.kind == take_in) block.sum = memory_.at(block.unit) = *outside;
      if (job.kind == go_down) disk_.at(block.slot) = memory_.at(block.unit);
      if (job.kind == come_up) memory_.at(block.unit) = disk_.at(block.slot);
      if (job.kind == take_in || job.kind == go_down) continue;
      const Value value = job.kind == give_out_disk ? disk_.at(block.slot) : memory_.at(block.unit);
      block.good = value == block.sum;
      if (block.good && outside != nullptr) *outside = value;
    }
  }

  std::vector<Value> memory_, disk_;
  std::vector<int> writers_;
  std::deque<TierJob> copies_, disk_jobs_, ended_;
};

}  // namespace paceline::kv::test
