// Drafts that come from drafter ranks (decoupled speculation, SpecActor section 4.1).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/core/mailbox.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/policy/placement.hpp"
#include "runtime/roles/draft_messages.hpp"

namespace paceline::roles {

/// A verifier's side of its drafter ranks, as a drafter among others: what has arrived is proposed,
/// at once; where nothing has, there is no draft and the verifier decodes plainly rather than
/// waits. Requests of a prompt go to one rank, so that it computes the prompt once.
class RemoteDrafter final : public draft::Drafter {
 public:
  /// `vocab`: ids past it are not drafted. The mailbox outlives this.
  RemoteDrafter(Mailbox& mailbox, std::vector<policy::DrafterPlace> drafters, int vocab);

  /// From now on these draft, which may be none. Requests go to whoever is theirs now.
  void use(std::vector<policy::DrafterPlace> drafters);

  void start(const draft::DraftStart& start, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void finish(RequestId id, double now) override;
  void leave(RequestId id, double now) override;
  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override;
  /// Its drafters must hear of every step.
  [[nodiscard]] bool listens() const override { return true; }
  void told() override;

  /// What a drafter rank has sent. Pieces that go on from a text that was not said, or make no
  /// sense, are dropped and counted.
  void receive(int from, const Drafts& drafts);

  struct Counts {
    std::uint64_t drafted = 0;  ///< tokens that arrived
    std::uint64_t stale = 0;    ///< of them, drafted from a text that was not said, or already said
    std::uint64_t invalid = 0;  ///< pieces that made no sense
    std::uint64_t late = 0;     ///< drafts asked for when none had arrived
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Ahead {
    TokenId token;
    float conditional;  ///< score given the tokens before
  };
  struct Request {
    std::optional<policy::DrafterPlace> drafter;
    NoiseKey noise;
    std::uint64_t move = 0;
    std::vector<TokenId> response;  ///< committed tokens
    std::int32_t refuted = 0;       ///< response tokens after the last that was drafted otherwise
    std::deque<Ahead> ahead;        ///< after the committed text
  };
  /// What a drafter rank has yet to be told.
  struct Outbox {
    DraftCommits commits;             ///< with the drafter that the rank is
    std::set<std::uint32_t> prompts;  ///< that it was sent
  };
  [[nodiscard]] Request& request(RequestId id);
  /// Gives the request to whoever drafts for it.
  void open(RequestId id, Request& r);
  void take(Request& r, const DraftPiece& piece, const Drafts& drafts);
  void say(RequestId id, const Request& r, DraftEnd how);
  void end(RequestId id, DraftEnd how);

  Mailbox& mailbox_;
  std::vector<policy::DrafterPlace> drafters_;
  int vocab_;
  std::map<std::uint32_t, std::vector<TokenId>> prompts_;  ///< of requests, by index
  std::map<RequestId, Request> requests_;
  std::map<int, Outbox> outboxes_;  ///< by rank; one of each drafter
  Counts counts_;
};

}  // namespace paceline::roles
