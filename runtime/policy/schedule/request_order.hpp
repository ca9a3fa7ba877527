// Order in which waiting requests are leased (Seer, section 4.3). It also says which of them
// displace running requests whose leases end.
//
// To add an order (a value of schedule.policy): a RequestOrder here, its value in
// io/config/run_config.hpp and its name in key_table.cpp (in the same order, with help), its making
// in app/assembly/coordination.cpp. Where it deals requests out beforehand, as GroupStatic does,
// look at every use of SchedulePolicy::group in app and io; where it needs lengths, as LongestFirst
// does, of SchedulePolicy::oracle. Tests that list orders: test_request_order.cpp,
// tests/mpi/divided.sh and soak.py, tests/sim/simulate.sh and campaign.py. Users:
// configs/README.md.
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

/// Precedence of a request: of two requests the one with the lesser precedence goes first. Where
/// only their places differ, neither displaces the other.
struct Precedence {
  int level = 0;
  double key = 0;
  std::uint64_t place = 0;  ///< index in the order of arrival
  auto operator<=>(const Precedence&) const = default;
};

/// One of the verifier groups: number `index` of `of` groups.
struct Slot {
  int index = 0;
  int of = 1;
};

/// Keeps waiting requests in order. A request gets its place of arrival at its first add(), and
/// keeps it. Not thread-safe.
class RequestOrder {
 public:
  virtual ~RequestOrder() = default;
  /// Adds a waiting request, whose response has `tokens` tokens.
  void add(RequestId id, std::uint32_t tokens);
  /// Removes a request, which waits no longer.
  virtual void remove(RequestId id);
  /// Reports that a response ended with `tokens` tokens.
  virtual void ended(RequestId /*id*/, std::uint32_t /*tokens*/) {}
  /// The waiting request to lease next to the slot's group; absent where none may go there. The
  /// answer stays the same until a request is added, removed or ended.
  [[nodiscard]] virtual std::optional<RequestId> next(const Slot& slot) { return nth(slot, 0); }
  /// Whether a waiting request displaces one that runs in the slot's group: the running one then
  /// gives way when its lease ends. `tokens`: tokens of the running request's response. `leaving`:
  /// number of requests that give way already; the first waiting ones take their places.
  [[nodiscard]] bool displaces(RequestId running, std::uint32_t tokens, const Slot& slot,
                               std::size_t leaving = 0);
  /// Returns the first `most` waiting requests, in order.
  [[nodiscard]] std::vector<RequestId> upcoming(std::size_t most) const;

 protected:
  struct Arrival {
    std::uint64_t request = 0;
    std::uint64_t prompt = 0;
  };
  /// The n-th waiting request, from 0 by precedence, among those that may go to the slot's group.
  [[nodiscard]] virtual std::optional<RequestId> nth(const Slot& slot, std::size_t n) const;
  /// Precedence of a request that waits or that is about to. `tokens`: of its response.
  [[nodiscard]] virtual Precedence precedence(RequestId id, std::uint32_t tokens) = 0;
  [[nodiscard]] const Arrival& arrival(RequestId id) const { return arrivals_.at(id); }
  [[nodiscard]] std::uint64_t prompts() const { return prompts_.size(); }
  /// Computes the precedences of a prompt's waiting requests again.
  void renew(std::uint32_t prompt);

  struct Candidate {
    Precedence precedence;
    RequestId id;
    auto operator<=>(const Candidate&) const = default;
  };
  [[nodiscard]] const std::set<Candidate>& waiting() const { return waiting_; }
  /// Called when a candidate joins or leaves the waiting ones. A request whose precedence changes
  /// leaves as one candidate and joins as another.
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
  std::map<std::uint32_t, std::uint64_t> prompts_;  ///< order of arrival, by prompt
  std::map<RequestId, Waiting> by_id_;
  std::set<Candidate> waiting_;
};

/// First come, first served: a request keeps its place from chunk to chunk.
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

/// veRL's order (Seer, section 4.2): prompts with all their requests are divided evenly among the
/// groups beforehand. A request never goes to another group. If several neighbouring groups are an
/// instance of an engine with data parallelism, prompts are divided among instances, and each
/// instance deals their requests to its groups in turn, as vLLM does.
class GroupStatic final : public RequestOrder {
 public:
  /// `instance`: groups of an instance; divides the number of groups.
  explicit GroupStatic(int instance = 1) : instance_(instance) {}

 protected:
  std::optional<RequestId> nth(const Slot& slot, std::size_t n) const override;
  Precedence precedence(RequestId id, std::uint32_t tokens) override;

 private:
  int instance_;
};

/// Longest processing time first, by lengths of an earlier run (Seer, section 6.4.1: Oracle).
class LongestFirst final : public RequestOrder {
 public:
  /// `lengths`: tokens by request. A request without an entry is taken to be as long as it may
  /// become: its prompt's max_tokens, or `max_tokens` where the prompt sets none. `prompts`: by
  /// index; must outlive this object. Empty: no prompt sets a length.
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
/// the one with the fewest tokens first, so that short ones end soon. The rest are in falling order
/// of the longest finished response to their prompt, or of `max_tokens` where none has finished. A
/// request that is longer than this counts with its own length.
///
/// Lengths may mislead. So now and then the next request is one of the prompt that was leased least
/// often ("scheduled at random from groups that have received the least execution time"): the
/// number of leases, which are chunks, stands for execution time.
class ContextAware final : public RequestOrder {
 public:
  /// `max_tokens`, `prompts`: as for LongestFirst. `seed`: of the random choices.
  ContextAware(std::uint32_t max_tokens, std::uint64_t seed, std::span<const Prompt> prompts = {});
  void remove(RequestId id) override;
  void ended(RequestId id, std::uint32_t tokens) override;
  std::optional<RequestId> next(const Slot& slot) override;

  /// Tokens of the prompt's longest finished response; where none has finished, the most that a
  /// response to it may have.
  [[nodiscard]] std::uint32_t estimate(std::uint32_t prompt) const;

 protected:
  Precedence precedence(RequestId id, std::uint32_t tokens) override;
  void entered(const Candidate& candidate) override;
  void left(const Candidate& candidate) override;

 private:
  /// One in so many leases goes to the least leased prompt. The paper gives no share; one in 16
  /// costs little where lengths are predicted well.
  static constexpr int kStarved = 16;

  /// A prompt's requests: the number of their leases, and those that wait.
  struct Siblings {
    std::uint64_t leases = 0;
    std::set<Candidate> waiting;
  };
  /// The first waiting request of a prompt, ordered by the prompt's number of leases.
  struct Starved {
    std::uint64_t leases = 0;
    Candidate first;
    auto operator<=>(const Starved&) const = default;
  };
  /// Applies `change` to a prompt's siblings, and updates starvation_.
  template <typename Change>
  void change(std::uint32_t prompt, const Change& change);
  [[nodiscard]] std::optional<RequestId> least_leased() const;

  std::uint32_t max_tokens_;
  std::span<const Prompt> prompts_;
  std::mt19937_64 random_;
  std::map<std::uint32_t, std::uint32_t> longest_;  ///< tokens, of finished responses, by prompt
  std::map<std::uint32_t, std::uint32_t> probes_;   ///< sample of the probe, by prompt
  std::map<std::uint32_t, Siblings> siblings_;      ///< by prompt
  std::set<Starved> starvation_;                    ///< one entry for each prompt that waits
  bool starved_due_ = false;                        ///< the next lease is for a starved prompt
  std::optional<RequestId> starved_;                ///< request chosen for it, and not leased yet
};

}  // namespace paceline::policy
