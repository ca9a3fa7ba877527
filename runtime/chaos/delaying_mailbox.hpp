// A mailbox that delays messages, for tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "runtime/core/mailbox.hpp"
#include "runtime/core/stopwatch.hpp"

namespace paceline::chaos {

/// Holds messages back for a random time after they have come. Messages of one sender stay in
/// order. Messages of different senders may overtake one another, the two participants of rank 0
/// being different senders.
class DelayingMailbox final : public Mailbox {
 public:
  struct Delays {
    std::uint64_t seed = 0;
    double share = 1;    ///< share of messages that are delayed
    double longest = 0;  ///< longest delay in seconds
  };
  /// `inner` must outlive this object, and be used only through it.
  DelayingMailbox(Mailbox& inner, Delays delays)
      : inner_(inner), random_(delays.seed), delays_(delays) {}

  void send(Address to, std::span<const std::byte> bytes) override { inner_.send(to, bytes); }
  void flush() override { inner_.flush(); }
  void deliver(std::span<const Address> to) override { inner_.deliver(to); }
  [[nodiscard]] std::optional<Envelope> poll() override {
    collect();
    const auto due = next();
    if (due == held_.end() || due->second.front().first > steady_seconds()) return std::nullopt;
    Envelope envelope = std::move(due->second.front().second);
    due->second.pop_front();
    return envelope;
  }
  bool wait(double seconds) override {
    const double end = steady_seconds() + seconds;
    while (true) {
      collect();
      if (woken_.exchange(false)) return true;
      const auto due = next();
      const double at = steady_seconds();
      if (due != held_.end() && due->second.front().first <= at) return true;
      if (at >= end) return false;
      inner_.wait((due == held_.end() ? end : std::min(end, due->second.front().first)) - at);
    }
  }
  void wake() override {
    woken_ = true;
    inner_.wake();
  }
  [[nodiscard]] bool full(Address to) const override { return inner_.full(to); }
  [[nodiscard]] Traffic traffic() const override { return inner_.traffic(); }

 private:
  using Queue = std::deque<std::pair<double, Envelope>>;  ///< with the times at which they are due

  void collect() {
    while (std::optional<Envelope> envelope = inner_.poll()) {
      Queue& queue = held_[envelope->from];
      double due = steady_seconds();
      if (chance_(random_) < delays_.share) due += delays_.longest * chance_(random_);
      if (!queue.empty()) due = std::max(due, queue.back().first);
      queue.emplace_back(due, std::move(*envelope));
    }
  }
  /// The queue whose first message is due first.
  [[nodiscard]] std::map<Address, Queue>::iterator next() {
    auto best = held_.end();
    for (auto queue = held_.begin(); queue != held_.end(); ++queue) {
      if (queue->second.empty()) continue;
      if (best == held_.end() || queue->second.front().first < best->second.front().first)
        best = queue;
    }
    return best;
  }

  Mailbox& inner_;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> chance_{0, 1};
  Delays delays_;
  std::map<Address, Queue> held_;  ///< by sender
  std::atomic<bool> woken_{false};
};

}  // namespace paceline::chaos
