// Mailboxes in memory: what is sent waits until its receiver polls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "runtime/core/clock.hpp"
#include "runtime/core/mailbox.hpp"

namespace paceline::roles::test {

class SteppedClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return time; }
  double time = 0;
};

/// Messages arrive in the order sent. With a seed those of different senders overtake one another,
/// and some take a while.
class Post {
 public:
  Post() = default;
  explicit Post(std::uint64_t seed) : random_(std::mt19937_64(seed)) {}

  void put(Address to, Address from, std::span<const std::byte> bytes) {
    boxes_[to].push_back({from, {bytes.begin(), bytes.end()}});
  }
  [[nodiscard]] bool holds(Address at) const {
    const auto box = boxes_.find(at);
    return box != boxes_.end() && !box->second.empty();
  }
  std::optional<Envelope> take(Address at) {
    std::deque<Envelope>& box = boxes_[at];
    if (box.empty()) return std::nullopt;
    auto next = box.begin();
    if (random_) {
      if ((*random_)() % 8 == 0) return std::nullopt;
      // The first of whoever sent some message that is not far behind.
      const std::size_t near = std::min<std::size_t>(box.size(), 16);
      const Address from = box[(*random_)() % near].from;
      next = std::find_if(box.begin(), box.end(), [&](const auto& e) { return e.from == from; });
    }
    Envelope e = std::move(*next);
    box.erase(next);
    return e;
  }

 private:
  std::map<Address, std::deque<Envelope>> boxes_;
  std::optional<std::mt19937_64> random_;
};

/// Full where a test says so. No time passes in it: wait() only says whether it would end.
class SimulatedMailbox final : public Mailbox {
 public:
  SimulatedMailbox(Post& post, Address me) : post_(post), me_(me) {}
  void send(Address to, std::span<const std::byte> bytes) override {
    post_.put(to, me_, bytes);
    ++traffic_.messages;
    ++traffic_.batches;
    traffic_.bytes += bytes.size();
  }
  void flush() override {}
  void deliver(std::span<const Address>) override {}
  std::optional<Envelope> poll() override { return post_.take(me_); }
  bool wait(double) override { return std::exchange(woken_, false) || post_.holds(me_); }
  void wake() override { woken_ = true; }
  [[nodiscard]] bool full(Address) const override { return full_; }
  [[nodiscard]] Traffic traffic() const override { return traffic_; }

  void set_full(bool full) { full_ = full; }

 private:
  Post& post_;
  Address me_;
  bool woken_ = false;
  bool full_ = false;
  Traffic traffic_;
};

}  // namespace paceline::roles::test
