// The order in which waiting requests are leased (Seer, section 4.3), and go before running ones
// when leases end.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "runtime/core/request.hpp"

namespace paceline::policy {

/// Rank of a request: of two the one with the lesser precedence goes first. Where only their places
/// differ, neither gives way to the other.
struct Precedence {
  int level = 0;
  double key = 0;
  std::uint64_t place = 0;  ///< the order of arrival
  auto operator<=>(const Precedence&) const = default;
};

/// One of the verifier groups: the `index`-th of `of`.
struct Slot {
  int index = 0;
  int of = 1;
};

/// Keeps waiting requests in order. A request takes its place when add() first names it, and keeps
/// it. Not thread-safe.
class RequestOrder {
 public:
  virtual ~RequestOrder() = default;
  /// The request waits from now on, with so many tokens of its response.
  void add(RequestId id, std::uint32_t tokens);
  /// The request waits no longer.
  virtual void remove(RequestId id);
  /// The response ended, with so many tokens.
  virtual void ended(RequestId /*id*/, std::uint32_t /*tokens*/) {}
  /// The waiting request that the slot's group is leased next; nothing where none may go there. The
  /// same until a request is leased, ends, or waits.
  [[nodiscard]] virtual std::optional<RequestId> next(const Slot& slot) { return nth(slot, 0); }
  /// Whether a request that waits for the group goes before one that runs there, with `tokens`
  /// tokens of its response: the running one gives way when its lease ends. `leaving`: others that
  /// do so already, in whose places the first that wait will come.
  [[nodiscard]] bool displaces(RequestId running, std::uint32_t tokens, const Slot& slot,
                               std::size_t leaving = 0);
  /// The first `most` waiting requests, in order.
  [[nodiscard]] std::vector<RequestId> upcoming(std::size_t most) const;

 protected:
  struct Arrival {
    std::uint64_t request = 0;
    std::uint64_t prompt = 0;
  };
  /// The n-th request, by precedence, of those that the slot may have.
  [[nodiscard]] virtual std::optional<RequestId> nth(const Slot& slot, std::size_t n) const;
  /// Precedence of a request that waits, or would wait from now on.
  [[nodiscard]] virtual Precedence precedence(RequestId id, std::uint32_t tokens) = 0;
  [[nodiscard]] const Arrival& arrival(RequestId id) const { return arrivals_.at(id); }
  [[nodiscard]] std::uint64_t prompts() const { return prompts_.size(); }
  /// Renews the precedences of a prompt's waiting siblings.
  void renew(std::uint32_t prompt);

  struct Candidate {
    Precedence precedence;
    RequestId id;
    auto operator<=>(const Candidate&) const = default;
  };
  [[nodiscard]] const std::set<Candidate>& waiting() const { return waiting_; }
  /// Called when a candidate joins or leaves the waiting ones. With another precedence it is
  /// another.
  virtual void entered(const Candidate& /*candidate*/) {}
  virtual void left(const Candidate& /*candidate*/) {}

 private:
  struct Waiting {
    std::uint32_t tokens = 0;
    Precedence precedence;
  };
  void enter(const Candidate& candidate);
  void leave(const Candidate& candidate);

  std::map<RequestId, Arrival> arrivals_;
  std::map<std::uint32_t, std::uint64_t> prompts_;  ///< place, by prompt
  std::map<RequestId, Waiting> by_id_;
  std::set<Candidate> waiting_;
};

/// First come, first served: a request that was begun goes before those that came later.
class FirstCome final : public RequestOrder {
 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;
};

/// Seer's No-Context (section 6.4.1): a request at the end of its chunk queues up again.
class QueueAgain final : public RequestOrder {
 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;

 private:
  double next_ = 0;
};

/// veRL's order (Seer, section 4.2): prompts are dealt out to the groups beforehand, as many to
/// each, with all their requests. A request never goes to another group.
class GroupStatic final : public RequestOrder {
 protected:
  std::optional<RequestId> nth(const Slot& slot, std::size_t n) const override;
  Precedence precedence(RequestId id, std::uint32_t tokens) override;
};

/// Longest processing time first, by lengths of an earlier run (Seer, section 6.4.1: Oracle).
class LongestFirst final : public RequestOrder {
 public:
  /// `lengths`: a request without one is taken to be as long as it may become: max_tokens, where
  /// its prompt sets none. `prompts`: by index; they outlive this. Empty: none sets any.
  LongestFirst(std::map<RequestId, std::uint32_t> lengths, std::uint32_t max_tokens,
               std::span<const Prompt> prompts = {});

 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;

 private:
  std::map<RequestId, std::uint32_t> lengths_;
  std::uint32_t max_tokens_;
  std::span<const Prompt> prompts_;
};

/// Seer's Algorithm 1. The first request of each prompt is a probe. Probes go before all others,
/// the one with the fewest tokens first, so that short ones end soon. The rest go by falling length
/// of their prompts' longest finished response, or `max_tokens` where none has finished. A request
/// that has outgrown its siblings counts as long as it is.
///
/// Lengths may mislead, so now and then the next request is of the prompt that was leased least
/// often ("scheduled at random from groups that have received the least execution time"): a lease
/// is a chunk, and so stands for execution time.
class ContextAware final : public RequestOrder {
 public:
  /// max_tokens and prompts as for LongestFirst.
  ContextAware(std::uint32_t max_tokens, std::uint64_t seed, std::span<const Prompt> prompts = {});
  void remove(RequestId id) override;
  void ended(RequestId id, std::uint32_t tokens) override;
  std::optional<RequestId> next(const Slot& slot) override;

  /// Tokens of the prompt's longest finished response; the most it may have where none finished.
  [[nodiscard]] std::uint32_t estimate(std::uint32_t prompt) const;

 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;
  void entered(const Candidate& candidate) override;
  void left(const Candidate& candidate) override;

 private:
  /// One in so many leases goes to the least leased prompt. The paper gives no share: one in 16
  /// costs little where lengths are foreseen well.
  static constexpr int kStarved = 16;

  /// A prompt's requests: how many leases they had, and which of them wait.
  struct Siblings {
    std::uint64_t leases = 0;
    std::set<Candidate> waiting;
  };
  /// The first request of a prompt that has some waiting. Fewest leases come first.
  struct Starved {
    std::uint64_t leases = 0;
    Candidate first;
    auto operator<=>(const Starved&) const = default;
  };
  /// Changes a prompt's siblings and, with them, its place among the starved.
  template <typename Change>
  void change(std::uint32_t prompt, const Change& change);
  [[nodiscard]] std::optional<RequestId> least_leased() const;

  std::uint32_t max_tokens_;
  std::span<const Prompt> prompts_;
  std::mt19937_64 random_;
  std::map<std::uint32_t, std::uint32_t> longest_;  ///< finished, by prompt
  std::map<std::uint32_t, std::uint32_t> probes_;   ///< sample of the probe, by prompt
  std::map<std::uint32_t, Siblings> siblings_;      ///< by prompt
  std::set<Starved> starvation_;                    ///< one of each prompt with waiting requests
  bool starved_due_ = false;                        ///< the next lease is for a starved prompt
  std::optional<RequestId> starved_;                ///< chosen, and not leased yet
};

}  // namespace paceline::policy
