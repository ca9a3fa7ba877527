// In which order requests that wait are leased (Seer, section 4.3), and before which running ones
// they go when a lease ends.
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

/// Of two requests the one with the lesser precedence goes first. Where only their places differ,
/// neither gives way to the other.
struct Precedence {
  int level = 0;
  double key = 0;
  std::uint64_t place = 0;  ///< the order in which they came
  auto operator<=>(const Precedence&) const = default;
};

/// One of the verifier groups: the `index`-th of `of`.
struct Slot {
  int index = 0;
  int of = 1;
};

/// Keeps those that wait in order. A request comes first when add() first names it, and keeps that
/// place. Not thread-safe.
class RequestOrder {
 public:
  virtual ~RequestOrder() = default;
  /// The request waits, and its response has so many tokens.
  void add(RequestId id, std::uint32_t tokens);
  /// It waits no longer.
  virtual void remove(RequestId id);
  /// Its response has ended, with so many tokens.
  virtual void ended(RequestId /*id*/, std::uint32_t /*tokens*/) {}
  /// Who of those that wait is leased next by the group of this slot. Nothing where none may go
  /// there. The same until one is leased, or ends, or waits.
  [[nodiscard]] virtual std::optional<RequestId> next(const Slot& slot) { return nth(slot, 0); }
  /// Whether one of those that wait for the group goes before a request of its, whose response has
  /// so many tokens: it gives way when its lease ends. `leaving`: how many others do so already, in
  /// whose places the first that wait will come.
  [[nodiscard]] bool displaces(RequestId running, std::uint32_t tokens, const Slot& slot,
                               std::size_t leaving = 0);
  /// Those that wait, in order, `most` of them.
  [[nodiscard]] std::vector<RequestId> upcoming(std::size_t most) const;

 protected:
  struct Place {
    std::uint64_t request = 0;
    std::uint64_t prompt = 0;
  };
  /// Of those that the slot may have, by precedence.
  [[nodiscard]] virtual std::optional<RequestId> nth(const Slot& slot, std::size_t n) const;
  /// Of one that waits, or would wait from now on.
  [[nodiscard]] virtual Precedence precedence(RequestId id, std::uint32_t tokens) = 0;
  [[nodiscard]] const Place& place(RequestId id) const { return places_.at(id); }
  [[nodiscard]] std::uint64_t prompts() const { return prompts_.size(); }
  /// The siblings of a prompt that wait have other precedences from now on.
  void renew(std::uint32_t prompt);

  struct Entry {
    Precedence precedence;
    RequestId id;
    auto operator<=>(const Entry&) const = default;
  };
  [[nodiscard]] const std::set<Entry>& waiting() const { return waiting_; }
  /// One is among those that wait, or is so no longer. With another precedence it is another.
  virtual void entered(const Entry& /*entry*/) {}
  virtual void left(const Entry& /*entry*/) {}

 private:
  struct Waiting {
    std::uint32_t tokens = 0;
    Precedence precedence;
  };
  void enter(const Entry& entry);
  void leave(const Entry& entry);

  std::map<RequestId, Place> places_;
  std::map<std::uint32_t, std::uint64_t> prompts_;  ///< place of each
  std::map<RequestId, Waiting> by_id_;
  std::set<Entry> waiting_;
};

/// As they came: one that was begun goes before those that came later.
class FirstCome final : public RequestOrder {
 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;
};

/// Seer's No-Context (section 6.4.1): a request that is at the end of its chunk queues up again.
class QueueAgain final : public RequestOrder {
 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;

 private:
  double next_ = 0;
};

/// As veRL does (Seer, section 4.2): prompts are dealt out to the groups beforehand, as many to
/// each, with all their requests. A request has no other group than that one.
class GroupStatic final : public RequestOrder {
 protected:
  std::optional<RequestId> nth(const Slot& slot, std::size_t n) const override;
  Precedence precedence(RequestId id, std::uint32_t tokens) override;
};

/// Longest first, by lengths that an earlier run found (Seer, section 6.4.1: Oracle).
class LongestFirst final : public RequestOrder {
 public:
  /// A request without a length is taken to be as long as it may become: max_tokens, where its
  /// prompt has none of its own. `prompts`: by index; they outlive this. None: none has.
  LongestFirst(std::map<RequestId, std::uint32_t> lengths, std::uint32_t max_tokens,
               std::span<const Prompt> prompts = {});

 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;

 private:
  std::map<RequestId, std::uint32_t> lengths_;
  std::uint32_t max_tokens_;
  std::span<const Prompt> prompts_;
};

/// Seer's Algorithm 1. The first request of each prompt is a probe; probes go before all others,
/// those with the fewest tokens first, so that short ones end soon. Of the rest those go first
/// whose prompts have the longest responses: the longest that ended, and `max_tokens` where none
/// has. One that has outgrown its siblings counts as long as it is.
///
/// Lengths may mislead, so that now and then the next is one of the prompt that was leased least
/// often ("scheduled at random from groups that have received the least execution time"): a lease
/// is a chunk, and so stands for its execution time.
class ContextAware final : public RequestOrder {
 public:
  /// max_tokens and prompts as for LongestFirst.
  ContextAware(std::uint32_t max_tokens, std::uint64_t seed, std::span<const Prompt> prompts = {});
  void remove(RequestId id) override;
  void ended(RequestId id, std::uint32_t tokens) override;
  std::optional<RequestId> next(const Slot& slot) override;

  /// Tokens of the longest response of the prompt that has ended; what it may become where none
  /// has.
  [[nodiscard]] std::uint32_t estimate(std::uint32_t prompt) const;

 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;
  void entered(const Entry& entry) override;
  void left(const Entry& entry) override;

 private:
  /// Of so many leases one goes to the prompt that had least. The paper gives no share: one in 16
  /// of the leases costs little where lengths are foreseen well.
  static constexpr int kStarved = 16;

  /// A prompt's requests: how many leases they had, and which of them wait.
  struct Siblings {
    std::uint64_t leases = 0;
    std::set<Entry> waiting;
  };
  /// Of a prompt with requests that wait, the first of them. Fewest leases come first.
  struct Starved {
    std::uint64_t leases = 0;
    Entry first;
    auto operator<=>(const Starved&) const = default;
  };
  /// Changes a prompt's siblings and, with them, its place among the starved.
  template <typename Change>
  void change(std::uint32_t prompt, const Change& change);
  [[nodiscard]] std::optional<RequestId> least_leased() const;

  std::uint32_t max_tokens_;
  std::span<const Prompt> prompts_;
  std::mt19937_64 random_;
  std::map<std::uint32_t, std::uint32_t> longest_;  ///< ended, by prompt
  std::map<std::uint32_t, std::uint32_t> probes_;   ///< sample, by prompt
  std::map<std::uint32_t, Siblings> siblings_;      ///< by prompt
  std::set<Starved> starvation_;                    ///< one of each prompt that has any who wait
  bool starved_due_ = false;                        ///< the next lease is for a starved prompt
  std::optional<RequestId> starved_;                ///< chosen, and not leased yet
};

}  // namespace paceline::policy
