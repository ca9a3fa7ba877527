// Mailboxes in memory: what is sent waits, in order, until its receiver polls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "runtime/core/mailbox.hpp"

namespace paceline::roles::test {

class Post {
 public:
  void put(Address to, int from, std::span<const std::byte> bytes) {
    boxes_[{to.rank, static_cast<int>(to.port)}].push_back({from, {bytes.begin(), bytes.end()}});
  }
  [[nodiscard]] bool holds(Address at) const {
    const auto box = boxes_.find({at.rank, static_cast<int>(at.port)});
    return box != boxes_.end() && !box->second.empty();
  }
  [[nodiscard]] std::size_t held(Address at) const {
    const auto box = boxes_.find({at.rank, static_cast<int>(at.port)});
    return box == boxes_.end() ? 0 : box->second.size();
  }
  [[nodiscard]] std::size_t most_held() const {
    std::size_t most = 0;
    for (const auto& [at, box] : boxes_) most = std::max(most, box.size());
    return most;
  }
  std::optional<Envelope> take(Address at) {
    auto& box = boxes_[{at.rank, static_cast<int>(at.port)}];
    if (box.empty()) return std::nullopt;
    Envelope e = std::move(box.front());
    box.pop_front();
    return e;
  }

 private:
  std::map<std::pair<int, int>, std::deque<Envelope>> boxes_;
};

/// Full with so many messages for one peer, or where a test says so. No time passes in it: wait()
/// only says whether it would end.
class SimulatedMailbox final : public Mailbox {
 public:
  SimulatedMailbox(Post& post, Address me) : post_(post), me_(me) {}
  void send(Address to, std::span<const std::byte> bytes) override {
    post_.put(to, me_.rank, bytes);
    ++traffic_.messages;
    ++traffic_.batches;
    traffic_.bytes += bytes.size();
  }
  void flush() override {}
  void deliver(std::span<const Address>) override {}
  std::optional<Envelope> poll() override { return post_.take(me_); }
  bool wait(double) override { return std::exchange(woken_, false) || post_.holds(me_); }
  void wake() override { woken_ = true; }
  [[nodiscard]] bool full(Address to) const override { return full_ || post_.held(to) >= kRoom; }
  [[nodiscard]] Traffic traffic() const override { return traffic_; }

  void set_full(bool full) { full_ = full; }
  static constexpr std::size_t kRoom = 6000;

 private:
  Post& post_;
  Address me_;
  bool woken_ = false;
  bool full_ = false;
  Traffic traffic_;
};

}  // namespace paceline::roles::test
