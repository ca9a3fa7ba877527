// A verifier's part in races (best-of-N, SpecActor section 4.2): several groups generate the same
// response, each with a drafter of its own, and tell each other what they commit.
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

/// The paper keeps the response of whoever is first, and lets the others go. Here the group that
/// was leased the request, its holder, always ends the response and writes it: what a racer commits
/// is what the holder will say, for trajectories do not depend on drafters. So the holder is behind
/// by a message and the step that verifies what came with it, and a race can be begun and dropped
/// at any time without anyone's consent.
///
/// Racers speak with the holder alone, which passes on what it hears. What comes from others is
/// only ever drafted, never believed. Not thread-safe.
class Races {
 public:
  /// `vocab`: tokens past it are no one's to say. The mailbox outlives this.
  Races(Mailbox& mailbox, std::int32_t vocab) : mailbox_(mailbox), vocab_(vocab) {}

  /// As the holder: another group, led by `racer`, has a copy of the request with this response.
  void offer(RequestId id, std::span<const TokenId> response, int racer, std::uint64_t key);
  /// As a racer: the request was offered by its holder.
  void join(RequestId id, std::span<const TokenId> response, int holder, std::uint64_t key);
  /// Whether this verifier generates it for another's sake only.
  [[nodiscard]] bool races_for(RequestId id) const;
  /// The requests of which that is so.
  [[nodiscard]] std::vector<RequestId> raced_for() const;

  /// What was committed here, to tell the others; nothing where the request is not raced for.
  void committed(RequestId id, std::span<const TokenId> tokens);
  /// It is no longer generated here: the others hear of it. Returns the race's key where this
  /// verifier raced for it, 0 otherwise.
  std::uint64_t end(RequestId id);

  /// What another group committed. True where the holder says that this verifier is to race no
  /// longer.
  [[nodiscard]] bool hear(int from, const RaceCommit& news);
  /// Tokens that come next, by what others have said. Valid until the next call that is not const.
  [[nodiscard]] std::span<const TokenId> foretold(RequestId id) const;
  /// Tokens that others said first, of all requests that this verifier holds.
  [[nodiscard]] std::uint64_t gained() const { return gained_; }

 private:
  /// A group that generates the request too.
  struct Other {
    int leader = 0;
    std::uint64_t key = 0;  ///< of the race
    std::size_t knows = 0;  ///< response tokens that it has said, or was told
  };
  struct Request {
    std::vector<TokenId> response;  ///< as far as anyone has said
    std::size_t own = 0;            ///< of it, committed here
    bool held = true;               ///< by this verifier, which others race for
    std::vector<Other> others;      ///< racers; or the holder, until it has said that it is over
    std::uint64_t key = 0;          ///< of the race, where it is not held
  };
  void tell(RequestId id, Request& request);

  Mailbox& mailbox_;
  std::int32_t vocab_;
  std::map<RequestId, Request> requests_;
  std::uint64_t gained_ = 0;
};

}  // namespace paceline::roles
