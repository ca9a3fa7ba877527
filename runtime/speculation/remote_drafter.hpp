// Drafts that come from drafter ranks (decoupled speculation, SpecActor section 4.1). A verifier's
// drafter ranks are those that draft for all groups, and those that draft for its own group by one
// drafter each (policy/schedule/tail_drafters.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/core/request_map.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/draft/features.hpp"
#include "runtime/policy/place/placement.hpp"
#include "runtime/protocol/draft_messages.hpp"
#include "runtime/speculation/drafter_watch.hpp"

namespace paceline::speculation {

struct RemoteOptions {
  int vocab = 0;                      ///< token ids are below this
  protocol::DraftWindow window = {};  ///< a draft has at most most_ahead(window.most()) tokens
  double patience = 2;                ///< seconds (DrafterWatch)
  std::size_t feature_bytes = 0;      ///< bytes of a position's features; 0: the ranks read none
  policy::DrafterDeal deal = policy::DrafterDeal::by_request;
};

/// A verifier's drafter ranks, as a drafter among others. Tokens that have arrived are proposed at
/// once. Where none have arrived, there is no draft: the verifier decodes plainly and does not
/// wait. RemoteOptions::deal says which rank drafts for a request.
///
/// Branches are kept next to a request's chain until the target has said the token at which they
/// leave the chain. Where several paths are asked for, a draft is the tree of chain and branches. A
/// branch that leaves by the target's token becomes the chain. Until the rank hears of this token,
/// it sends the further tokens of this chain as tokens of a branch.
///
/// Nothing that a drafter rank does or sends is trusted. Messages that make no sense are counted
/// and dropped. A rank that floods has most of its messages dropped unread. A rank that does not
/// read, so that its mailbox is full, is sent nothing until there is room again. Then the requests
/// that went on meanwhile are opened there anew. For a rank that drafts by a head their commits are
/// held and sent then, unless they are too many. DrafterWatch tells the user.
///
/// Ranks that draft by a head are sent the target's features as they are computed. Features that
/// cannot be sent now are kept, but only the latest: as many as a head would keep.
class RemoteDrafter final : public draft::Drafter, public draft::FeatureReader {
 public:
  /// Mailbox and clock outlive this.
  RemoteDrafter(Mailbox& mailbox, const Clock& clock, std::vector<policy::DrafterPlace> drafters,
                const RemoteOptions& options, DrafterWatch::Warn warn);

  /// Makes `drafters`, perhaps none, the ranks that draft, and gives each request to its new rank.
  void use(std::vector<policy::DrafterPlace> drafters);

  void start(const draft::DraftStart& start, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void finish(RequestId id, double now) override;
  void leave(RequestId id, double now) override;
  [[nodiscard]] std::size_t feature_bytes() const override { return options_.feature_bytes; }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) override;
  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override;
  [[nodiscard]] bool present() const override { return !drafters_.empty(); }
  void told() override;
  [[nodiscard]] draft::Capabilities capabilities() override {
    return {.features = options_.feature_bytes > 0 ? this : nullptr, .ahead = true};
  }

  [[nodiscard]] bool is_drafter(int rank) const { return links_.contains(rank); }
  /// Takes a message of a drafter rank, which may have any contents.
  void receive(int from, std::span<const std::byte> message);
  /// Tells the user the totals of each rank's troubles.
  void close();

  struct Counts {
    std::uint64_t drafted = 0;   ///< tokens that arrived
    std::uint64_t stale = 0;     ///< arrived tokens that contradict the text or came too late
    std::uint64_t invalid = 0;   ///< messages and pieces that made no sense
    std::uint64_t flooded = 0;   ///< messages dropped unread
    std::uint64_t late = 0;      ///< slots that propose() left without a draft
    std::uint64_t foreseen = 0;  ///< refutations after which a branch went on
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Ahead {
    TokenId token;
    float conditional;  ///< score, given the tokens before
  };
  struct Branch {
    TokenId instead = 0;
    std::deque<Ahead> ahead;  ///< drafted tokens after `instead`
  };
  struct RemoteRequest {
    int rank = -1;  ///< rank of the request's drafter; -1: none
    NoiseKey noise;
    std::uint64_t version = 0;  ///< version of the request's holder
    bool wanted = true;         ///< false: no rank drafts for the request
    RequestSampling sampling;
    std::vector<TokenId> response;            ///< committed tokens
    std::int32_t refuted = 0;                 ///< response length just after the last refuted token
    std::int32_t before = 0;                  ///< previous value of `refuted`
    std::deque<Ahead> ahead;                  ///< drafted tokens after the committed text
    std::map<std::int32_t, Branch> branches;  ///< by DraftPiece::leaves, past the committed text
    draft::Features unsent;                   ///< features to be sent to its rank
    bool opened = false;                      ///< its rank was told of the request
    bool follows = false;                     ///< its rank was also told of all commits since
  };
  struct Link {
    DrafterWatch watch;
    std::uint32_t since = 0;          ///< epoch of the placement since which the rank drafts
    protocol::DraftCommits commits;   ///< commits that the rank has yet to be told
    std::vector<RequestId> unopened;  ///< requests to open at the rank, for the first time or anew
    std::set<std::uint32_t> prompts;  ///< prompts that the rank was sent
    RequestId next_features;          ///< request whose features are sent first
  };
  [[nodiscard]] RemoteRequest& request(RequestId id);
  void link_all();
  void tell(int rank, Link& link);
  void open(Link& link, RequestId id);
  bool send_features(int rank, Link& link);
  static void hold_back(Link& link, RequestMap<RemoteRequest>& requests);
  DrafterWatch::Worth read(int from, Link& link, std::span<const std::byte> message);
  void drop_drafts(RemoteRequest& r);
  void drop_branches(RemoteRequest& r);
  static void refute(RemoteRequest& r, std::int32_t length);
  bool extend(RemoteRequest& r, const protocol::DraftPiece& piece, const protocol::Drafts& drafts);
  bool extend_branch(RemoteRequest& r, const protocol::DraftPiece& piece,
                     const protocol::Drafts& drafts);
  bool append(RemoteRequest& r, const protocol::DraftPiece& piece, const protocol::Drafts& drafts);
  static void add(std::deque<Ahead>& ahead, const protocol::DraftPiece& piece,
                  const protocol::Drafts& drafts, std::int32_t from);
  static void add_branches(const RemoteRequest& r, draft::DraftSlot& slot);
  [[nodiscard]] bool makes_sense(const protocol::DraftPiece& piece,
                                 const protocol::Drafts& drafts) const;
  void give(RequestId id, RemoteRequest& r);
  void take_back(RequestId id, RemoteRequest& r, protocol::DraftEnd how);
  void end(RequestId id, protocol::DraftEnd how);

  Mailbox& mailbox_;
  const Clock& clock_;
  std::vector<policy::DrafterPlace> drafters_;
  RemoteOptions options_;
  DrafterWatch::Warn warn_;
  RequestMap<RemoteRequest> requests_;
  std::map<std::uint32_t, std::vector<TokenId>> prompts_;  ///< prompts of requests_, by index
  std::map<int, Link> links_;                              ///< by rank
  Counts counts_;
};

/// Ranks that draft by different drafters of the run have different RemoteDrafters, for tokens of
/// different drafters are accepted differently. Not thread-safe.
class RemoteDrafters {
 public:
  /// `group`: the rank of the verifier, which leads its group.
  explicit RemoteDrafters(std::int32_t group) : group_(group) {}

  /// Adds the ranks that draft by `method`, index of one of the run's drafters. `method` absent:
  /// the ranks that draft by all of them, for all groups. `drafter` outlives this.
  void add(RemoteDrafter& drafter, OptionalIndex method) {
    drafters_.push_back({&drafter, method});
  }

  /// Takes the drafter ranks' places that hold from now on.
  void use(std::span<const policy::DrafterPlace> places);
  [[nodiscard]] bool is_drafter(int rank) const;
  /// Takes a message of a drafter rank, which may have any contents.
  void receive(int from, std::span<const std::byte> message);
  /// Tells the user the totals of each rank's troubles.
  void close();
  [[nodiscard]] RemoteDrafter::Counts counts() const;
  [[nodiscard]] std::int32_t group() const { return group_; }
  [[nodiscard]] std::size_t size() const { return drafters_.size(); }

 private:
  struct Of {
    RemoteDrafter* drafter;
    OptionalIndex method;
  };
  std::int32_t group_;
  std::vector<Of> drafters_;
};

}  // namespace paceline::speculation
