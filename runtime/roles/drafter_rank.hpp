// A drafter rank drafts tokens for verifiers on other ranks, and runs ahead of them (decoupled
// speculation, SpecActor section 4.1).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/mailbox.hpp"
#include "runtime/core/request_map.hpp"
#include "runtime/core/types.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/policy/length/acceptance.hpp"
#include "runtime/policy/length/outcomes.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/protocol/participant.hpp"
#include "runtime/roles/drafted_text.hpp"

namespace paceline::roles {

struct DrafterOptions {
  policy::DrafterPlace place;  ///< place of this rank in the placement
  protocol::DraftWindow window = {};
  int max_batch = 64;  ///< greatest number of rows in one call of a drafter
  /// Seconds of a call, by number of rows with one new token each, of the first drafter that can
  /// draft branches. If this is empty, branches are drafted only if `shuffle` is set.
  CostCurve calls = {};
  std::uint64_t shuffle = 0;     ///< seed of a random choice of branches; 0: no random choice
  DType features = DType::bf16;  ///< type of the target's features, if a drafter reads them
};

/// The rank drafts for its requests in turn, a few tokens in each call. The window limits how far
/// the rank runs ahead of the tokens that a verifier has committed. Drafters are asked in order,
/// each for the requests for which earlier drafters found nothing. A draft is a chain of tokens.
///
/// A rank is eager if one call drafts for all its requests (DraftWindow::eager). An eager rank also
/// drafts branches if they pay off (policy/length/outcomes.hpp). A branch leaves a request's chain
/// at one token, for the drafter's second choice. If the target samples this second choice, the
/// branch becomes the chain, and the verifier's next step has a draft. Without a branch the next
/// step has no draft, because it begins before the rank has heard of the rejected token. A verifier
/// for which rows are cheap verifies branches together with the chain.
///
/// A head, such as EAGLE's, drafts from the target's features, which verifiers send. Past the last
/// position with target features the head goes on from its own features, and computes the later
/// positions again when the target's features for them come. If features never come (a request
/// moved, a mailbox was full), the head begins anew with the next features that come.
///
/// Only the coordinator is trusted. Other senders may have been drafter ranks, and drafter ranks
/// can send anything. Invalid contents are dropped and counted (RankSummary::invalid).
class DrafterRank final : public protocol::Participant {
 public:
  /// `drafters`: not empty. References outlive this.
  DrafterRank(Mailbox& mailbox, const Clock& clock,
              std::vector<std::unique_ptr<draft::Drafter>> drafters, TelemetrySink& telemetry,
              const DrafterOptions& options);

  protocol::Turn turn() override;
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_place_; }
  /// Totals so far; the caller fills in rank, role and memory.
  [[nodiscard]] RankSummary summary() const { return summary_; }
  /// [drafters] How many drafted tokens were compared with the response, and how many were right.
  [[nodiscard]] std::span<const DraftTally> tallies() const { return tallies_; }

 private:
  struct OpenRequest {
    int verifier = 0;
    std::uint64_t version = 0;  ///< Admission::version as the verifier sent it
    std::int32_t response = 0;  ///< number of committed tokens
    DraftedText ahead;          ///< tokens drafted after the committed ones
  };
  /// A request for which the current call has found no draft yet.
  struct Asked {
    RequestId id;
    OpenRequest* request = nullptr;
  };
  /// A branch that might get another token in the current call.
  struct Outcome {
    RequestId id;
    std::int32_t leaves = 0;  ///< response index at which the branch leaves the chain
    double chance = 0;        ///< probability that the target samples all the branch's tokens
  };
  /// Messages exchanged with a verifier. The rank answers soon, even without drafts (kSignSeconds).
  struct Correspondence {
    double said = 0;     ///< time of the last message to the verifier
    bool waits = false;  ///< the verifier has sent a message since then
  };
  void receive();
  void take(const Envelope& envelope);
  void open(int from, const protocol::DraftOpen& open);
  bool goes_on(int from, const protocol::DraftOpen& open, OpenRequest& r);
  void apply(int from, const protocol::DraftCommits& commits);
  void note_answer();
  void observe(int from, const protocol::DraftFeatures& message);
  [[nodiscard]] bool usable(const protocol::DraftFeatures& message) const;
  void judge(OpenRequest& r, std::span<const TokenId> tokens);
  void tally(const DraftedChain& chain, std::size_t agreed, std::span<const TokenId> tokens);
  void waste(std::size_t tokens, std::size_t of_branches);
  void drop(RequestId id);
  [[nodiscard]] std::size_t requests_of_call() const;
  bool draft();
  double list_outcomes(RequestId id, const OpenRequest& r);
  void choose_outcomes();
  void ask(std::int32_t drafter);
  void add_slot(RequestId id, std::span<const TokenId> assumed, int most, std::int32_t branch);
  void take_draft(const draft::DraftSlot& slot, std::int32_t drafter, DraftedChain& chain);
  void send_due();
  [[nodiscard]] bool eager() const {
    return options_.window.eager > 0 && std::ssize(requests_) <= options_.max_batch;
  }
  [[nodiscard]] int window() const {
    return eager() ? options_.window.most() : options_.window.tokens;
  }
  /// Number of tokens of a piece, the part of a draft that is sent in one message.
  [[nodiscard]] int piece() const { return eager() ? 1 : options_.window.tokens; }
  [[nodiscard]] int most_ahead() const { return protocol::most_ahead(window()); }
  [[nodiscard]] bool at_limit(const OpenRequest& r) const {
    return static_cast<int>(r.ahead.chain.size()) >= most_ahead();
  }
  /// Whether drafters may be asked to extend the request's chain. They may not while a whole piece
  /// is unsent, for instance because the verifier's mailbox is full.
  [[nodiscard]] bool may_ask(const OpenRequest& r) const {
    return !at_limit(r) && !r.ahead.chain.exhausted && r.ahead.chain.unsent() < piece();
  }
  void say(int verifier, const protocol::Drafts& drafts);

  Mailbox& mailbox_;
  const Clock& clock_;
  std::vector<std::unique_ptr<draft::Drafter>> drafters_;
  TelemetrySink& telemetry_;
  DrafterOptions options_;
  std::vector<draft::FeatureReader*> readers_;
  std::size_t feature_bytes_ = 0;  ///< bytes of a position's features; 0: no drafter reads any
  std::map<std::uint32_t, std::vector<TokenId>> prompts_;
  RequestMap<OpenRequest> requests_;
  std::map<int, Correspondence> verifiers_;
  RequestId next_;             ///< first request of the next call, if not all fit in one call
  double held_up_since_ = -1;  ///< time since which the rank waits for verifiers; -1: not waiting
  bool over_ = false;
  std::optional<policy::Placement> next_place_;
  RankSummary summary_;
  std::vector<DraftTally> tallies_;
  std::int32_t branching_ = -1;  ///< index of the drafter that drafts branches; -1: none does
  policy::AcceptanceModel acceptance_;
  policy::FadingShare second_choices_;  ///< how often they are right if the first is wrong
  std::uint32_t drawn_ = 0;             ///< random numbers drawn
  double answered_ = -1;                ///< time of the last DraftCommits; -1: none yet
  double between_answers_ = 0;          ///< average seconds between DraftCommits; 0: not known

  // State of the current call.
  std::vector<Asked> asked_;       ///< requests without a draft yet
  std::vector<Outcome> outcomes_;  ///< branches to be extended
  std::vector<draft::DraftSlot> slots_;
  std::vector<std::vector<TokenId>> assumed_;  ///< [slots] drafted tokens before the new ones
  std::vector<TokenId> tokens_;                ///< [slots, window] drafted tokens
  std::vector<TokenId> runners_up_;            ///< [slots, window] second choices
  std::vector<std::int32_t> parents_;          ///< [slots, window] DraftOutput::parents
  std::vector<float> path_scores_;             ///< [slots, window] DraftOutput::scores
};

}  // namespace paceline::roles
