// Mailboxes in memory: what is sent waits, in order, until its receiver polls.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "runtime/fabric/mailbox.hpp"

namespace paceline::roles::test {

class Post {
 public:
  void put(fabric::Address to, int from, std::span<const std::byte> bytes) {
    boxes_[{to.rank, static_cast<int>(to.port)}].push_back({from, {bytes.begin(), bytes.end()}});
  }
  std::optional<fabric::Envelope> take(fabric::Address at) {
    auto& box = boxes_[{at.rank, static_cast<int>(at.port)}];
    if (box.empty()) return std::nullopt;
    fabric::Envelope e = std::move(box.front());
    box.pop_front();
    return e;
  }

 private:
  std::map<std::pair<int, int>, std::deque<fabric::Envelope>> boxes_;
};

class SimulatedMailbox final : public fabric::Mailbox {
 public:
  SimulatedMailbox(Post& post, fabric::Address me) : post_(post), me_(me) {}
  void send(fabric::Address to, std::span<const std::byte> bytes) override {
    post_.put(to, me_.rank, bytes);
    ++traffic_.messages;
  }
  std::optional<fabric::Envelope> poll() override { return post_.take(me_); }
  [[nodiscard]] Traffic traffic() const override { return traffic_; }

 private:
  Post& post_;
  fabric::Address me_;
  Traffic traffic_;
};

}  // namespace paceline::roles::test
