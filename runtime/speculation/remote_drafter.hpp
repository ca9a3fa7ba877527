// Drafts that come from drafter ranks: ranks that only draft, for verifiers on other ranks
// (decoupled speculation, SpecActor section 4.1). Some drafter ranks draft for all groups, others
// for one group and by one drafter (policy/schedule/tail_drafters.hpp).
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
  protocol::DraftWindow window = {};  ///< how far ranks draft ahead (protocol::most_ahead())
  double patience = 2;                ///< seconds; see DrafterWatch
  std::size_t feature_bytes = 0;      ///< bytes of a position's features; 0: the ranks read none
  policy::DrafterDeal deal = policy::DrafterDeal::by_request;
};

/// Presents several drafter ranks to a verifier as one drafter. propose() returns the tokens that
/// have arrived, and never waits: a request for which nothing has arrived gets no draft in this
/// step. RemoteOptions::deal says which rank drafts for a request.
///
/// A rank drafts a chain of tokens for each request, and perhaps branches. A branch leaves the
/// chain at some position, and has another token there. The chain is refuted when the target
/// samples another token than the chain's. If a branch has the target's token at this position, the
/// branch becomes the chain. Until the rank hears of the refutation, it sends further tokens of the
/// new chain as tokens of the branch. If propose() is asked for several paths, the draft is a tree
/// of the chain and the branches.
///
/// A rank that drafts by a head (such as EAGLE-3) is sent the target's features (hidden states) of
/// each step. If features cannot be sent yet, only the latest are kept, as many as a head would
/// keep.
///
/// Nothing that a drafter rank does or sends is trusted. Messages and pieces of drafts that make no
/// sense are counted and dropped. If a rank floods the verifier, most of its messages are dropped
/// unread. If a rank does not read its messages, its mailbox becomes full. Until the mailbox has
/// room, nothing is sent to the rank. Requests that got tokens meanwhile are later opened anew: the
/// rank is sent their whole responses. But opening makes a head lose the request's features, so a
/// rank with a head is sent the missed commits instead, up to a limit. DrafterWatch warns the user.
class RemoteDrafter final : public draft::Drafter, public draft::FeatureReader {
 public:
  /// `mailbox` and `clock` must outlive this object.
  RemoteDrafter(Mailbox& mailbox, const Clock& clock, std::vector<policy::DrafterPlace> drafters,
                const RemoteOptions& options, DrafterWatch::Warn warn);

  /// Makes `drafters` (may be empty) the ranks that draft, and gives each request to its new rank.
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
  /// Takes a message of `from`, a rank with is_drafter(). The message may have any contents.
  void receive(int from, std::span<const std::byte> message);
  /// Tells the user how often each rank made trouble (DrafterWatch::sum_up()).
  void close();

  struct Counts {
    std::uint64_t drafted = 0;   ///< tokens that arrived in pieces that make sense
    std::uint64_t stale = 0;     ///< arrived tokens that were dropped, such as refuted or late ones
    std::uint64_t invalid = 0;   ///< messages and pieces that made no sense
    std::uint64_t flooded = 0;   ///< messages dropped unread
    std::uint64_t late = 0;      ///< times that propose() left a request without a draft
    std::uint64_t foreseen = 0;  ///< refuted chains that a branch replaced at once
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  struct Ahead {
    TokenId token;
    float conditional;  ///< drafter's score of the token, given the tokens before it
  };
  struct Branch {
    TokenId instead = 0;      ///< token with which the branch leaves the chain
    std::deque<Ahead> ahead;  ///< drafted tokens after `instead`
  };
  struct RemoteRequest {
    int rank = -1;  ///< drafter rank of the request; -1: none
    NoiseKey noise;
    std::uint64_t version = 0;  ///< DraftOpen::version
    bool wanted = true;         ///< false: no rank is to draft for the request
    RequestSampling sampling;
    std::vector<TokenId> response;  ///< committed tokens
    std::int32_t refuted = 0;       ///< response length after the last refuting token, or at open()
    std::int32_t before = 0;        ///< previous value of `refuted`
    std::deque<Ahead> ahead;        ///< the chain: drafted tokens after the committed text
    std::map<std::int32_t, Branch> branches;  ///< by the response index at which they leave
    draft::Features unsent;                   ///< features that were not sent to `rank` yet
    bool opened = false;                      ///< `rank` was sent the request (DraftOpen)
    bool follows = false;                     ///< `rank` is also sent all later commits
  };
  struct Link {
    DrafterWatch watch;
    std::uint32_t since = 0;          ///< epoch of the placement that made the rank a drafter
    protocol::DraftCommits commits;   ///< commits that were not sent to the rank yet
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

/// A verifier's RemoteDrafter objects. Ranks that use different drafters belong to different
/// objects, because the Speculator measures the acceptance of each object. Not thread-safe.
class RemoteDrafters {
 public:
  /// `group`: rank of the verifier, the leader of its group.
  explicit RemoteDrafters(std::int32_t group) : group_(group) {}

  /// Adds a RemoteDrafter for the ranks that draft for this group by `method`, an index among the
  /// run's drafters. `method` absent: for the ranks that draft by all drafters for all groups.
  /// `drafter` must outlive this object.
  void add(RemoteDrafter& drafter, OptionalIndex method) {
    drafters_.push_back({&drafter, method});
  }

  /// Gives each RemoteDrafter its ranks. `places`: all drafter ranks of the new placement.
  void use(std::span<const policy::DrafterPlace> places);
  [[nodiscard]] bool is_drafter(int rank) const;
  void receive(int from, std::span<const std::byte> message);
  void close();  ///< calls RemoteDrafter::close() of each
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
