// A verifier's part in races (best-of-N, SpecActor section 4.2): several groups generate the same
// response, each with a drafter of its own, and tell each other the tokens that they commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "runtime/core/mailbox.hpp"
#include "runtime/core/request.hpp"
#include "runtime/core/types.hpp"
#include "runtime/protocol/messages.hpp"

namespace paceline::roles {

/// The group to which the request is leased is the holder; the other groups are racers. The paper
/// keeps the response of the group that finishes first. Here the holder writes the response even if
/// a racer is faster. Trajectories do not depend on drafters, so racers commit the same tokens as
/// the holder. The holder uses a racer's tokens as a draft, so it follows a faster racer at a
/// distance of about one message and one step. A group can leave a race at any time.
///
/// Racers send their tokens only to the holder, which passes them on to other racers. Every group
/// verifies the tokens that it gets from other groups. Not thread-safe.
class Races {
 public:
  /// Messages with token ids outside [0, vocab) are dropped. The mailbox outlives this.
  Races(Mailbox& mailbox, std::int32_t vocab) : mailbox_(mailbox), vocab_(vocab) {}

  /// Called by the holder when it offers a copy of the request to the group led by `racer`.
  /// `response`: number of response tokens in the copy. `key`: key of the race.
  void offer(RequestId id, std::size_t response, int racer, std::uint64_t key);
  /// Called by a racer that accepts an offer. `response`: number of response tokens in the offer.
  void join(RequestId id, std::size_t response, int holder, std::uint64_t key);
  /// Whether this verifier only races for the request, and another group holds it.
  [[nodiscard]] bool races_for(RequestId id) const;
  /// All requests that this verifier only races for.
  [[nodiscard]] std::vector<RequestId> raced_for() const;

  /// Notes tokens that were committed here, and sends them to the other groups of the race, if any.
  void committed(RequestId id, std::span<const TokenId> tokens);
  /// Tells the other groups that the request is no longer generated here. Returns the race's key if
  /// this verifier only raced for the request, 0 otherwise.
  std::uint64_t end(RequestId id);

  /// Takes tokens that another group committed. Returns whether the holder has ended the race.
  [[nodiscard]] bool hear(int from, const protocol::RaceCommit& news);
  /// The request's next tokens, from other groups. Valid until the next call that is not const.
  [[nodiscard]] std::span<const TokenId> foretold(RequestId id) const;
  /// Number of tokens of held requests that racers sent before this verifier committed them.
  [[nodiscard]] std::uint64_t gained() const { return gained_; }

 private:
  /// Another group that generates the request.
  struct Other {
    int leader = 0;
    std::uint64_t key = 0;  ///< key of the race
    std::size_t knows = 0;  ///< response tokens that the group is known to have
  };
  struct RacedRequest {
    std::size_t own = 0;              ///< response tokens committed here
    std::vector<TokenId> ahead = {};  ///< tokens after the `own` ones, from other groups
    bool held = true;                 ///< this verifier is the holder; false: it is a racer
    /// For the holder: its racers. For a racer: the holder, until the holder has ended the race.
    std::vector<Other> others = {};
    std::uint64_t key = 0;  ///< key of the race, if this verifier is a racer
    [[nodiscard]] std::size_t known() const { return own + ahead.size(); }
  };
  void tell(RequestId id, RacedRequest& request, std::span<const TokenId> fresh);

  Mailbox& mailbox_;
  std::int32_t vocab_;
  std::map<RequestId, RacedRequest> requests_;
  std::uint64_t gained_ = 0;
};

}  // namespace paceline::roles
