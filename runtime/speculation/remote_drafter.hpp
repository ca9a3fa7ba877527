// Drafts that come from drafter ranks (decoupled speculation, SpecActor section 4.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/draft/features.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/protocol/draft_messages.hpp"
#include "runtime/speculation/drafter_watch.hpp"

namespace paceline::roles {

struct RemoteOptions {
  int vocab = 0;                  ///< ids past it are no tokens
  int window = 4;                 ///< DrafterOptions::window of the ranks: bounds what may be ahead
  double patience = 2;            ///< seconds, as DrafterWatch's
  std::size_t feature_bytes = 0;  ///< of the target's that the ranks read; 0: they read none
};

/// A verifier's side of its drafter ranks, as a drafter among others: what has arrived is proposed,
/// at once; where nothing has, there is no draft and the verifier decodes plainly rather than
/// waits. Requests of a prompt go to one rank, so that it computes the prompt once.
///
/// Nothing that a drafter rank does or sends is trusted. What makes no sense is counted and
/// dropped; of a rank that floods, most is dropped unread. A rank that does not read what it is
/// sent, so that its mailbox is full, is sent no more; once there is room again it is told anew of
/// the requests that went on meanwhile. What the user hears of that is DrafterWatch's.
///
/// Ranks that draft by a head are sent the target's features as they are computed. Of what they
/// cannot be sent now the latest are kept, as many as a head would keep.
class RemoteDrafter final : public draft::Drafter {
 public:
  /// Mailbox and clock outlive this.
  RemoteDrafter(Mailbox& mailbox, const Clock& clock, std::vector<policy::DrafterPlace> drafters,
                const RemoteOptions& options, DrafterWatch::Warn warn);

  /// From now on these draft, which may be none. Requests go to whoever is theirs now.
  void use(std::vector<policy::DrafterPlace> drafters);

  void start(const draft::DraftStart& start, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void finish(RequestId id, double now) override;
  void leave(RequestId id, double now) override;
  [[nodiscard]] std::size_t feature_bytes() const override { return options_.feature_bytes; }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) override;
  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override;
  /// Its drafters must hear of every step.
  [[nodiscard]] bool listens() const override { return true; }
  [[nodiscard]] bool runs_ahead() const override { return true; }
  [[nodiscard]] bool present() const override { return !drafters_.empty(); }
  void set_window(RequestId id, int window) override;
  void told() override;

  [[nodiscard]] bool is_drafter(int rank) const { return links_.contains(rank); }
  /// What a drafter rank has sent, whatever it is.
  void receive(int from, std::span<const std::byte> message);
  /// Says what was wrong with each rank in all.
  void close();

  struct Counts {
    std::uint64_t drafted = 0;  ///< tokens that arrived
    std::uint64_t stale = 0;    ///< of them, drafted from a text that was not said, or already said
    std::uint64_t invalid = 0;  ///< messages and pieces that made no sense
    std::uint64_t flooded = 0;  ///< messages dropped unread
    std::uint64_t late = 0;     ///< drafts asked for when none had arrived
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Ahead {
    TokenId token;
    float conditional;  ///< score given the tokens before
  };
  struct Request {
    int rank = -1;  ///< of its drafter; -1: it has none
    NoiseKey noise;
    std::uint64_t version = 0;  ///< of its holder
    int window = 0;             ///< 0: nobody is to draft for it
    RequestSampling sampling;
    std::vector<TokenId> response;  ///< committed tokens
    std::int32_t refuted = 0;       ///< response tokens after the last that was drafted otherwise
    std::deque<Ahead> ahead;        ///< after the committed text
    draft::Features unsent;         ///< that its rank is to be sent
    bool opened = false;            ///< its rank was told of it
    bool follows = false;           ///< and of all that was committed since
  };
  struct Link {
    DrafterWatch watch;
    std::uint32_t since = 0;          ///< which drafter the rank is
    DraftCommits commits;             ///< that it has yet to be told
    std::vector<RequestId> unopened;  ///< requests that it is to be told of, or anew
    std::set<std::uint32_t> prompts;  ///< that it was sent
    RequestId next_features;          ///< whose are sent first
  };
  [[nodiscard]] Request& request(RequestId id);
  void link_all();
  void tell(int rank, Link& link);
  void open(Link& link, RequestId id);
  bool send_features(int rank, Link& link);
  static void hold_back(Link& link, std::map<RequestId, Request>& requests);
  DrafterWatch::Worth read(int from, Link& link, std::span<const std::byte> message);
  bool extend(Request& r, const DraftPiece& piece, const Drafts& drafts);
  [[nodiscard]] bool makes_sense(const DraftPiece& piece, const Drafts& drafts) const;
  void give(RequestId id, Request& r);
  void take_back(RequestId id, Request& r, DraftEnd how);
  void end(RequestId id, DraftEnd how);

  Mailbox& mailbox_;
  const Clock& clock_;
  std::vector<policy::DrafterPlace> drafters_;
  RemoteOptions options_;
  DrafterWatch::Warn warn_;
  std::map<RequestId, Request> requests_;
  std::map<std::uint32_t, std::vector<TokenId>> prompts_;  ///< of requests, by index
  std::map<int, Link> links_;                              ///< by rank
  Counts counts_;
};

}  // namespace paceline::roles
