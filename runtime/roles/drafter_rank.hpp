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
  int max_batch = 64;  ///< greatest number of rows (chains and branches) in one call of a drafter
  /// For the first drafter that can draft branches: seconds of a call that drafts one token for
  /// each row. If this is empty, branches are drafted only if `shuffle` is set.
  CostCurve calls = {};
  std::uint64_t shuffle = 0;     ///< seed for drawing the number of branches; 0: as many as pay off
  DType features = DType::bf16;  ///< type of the target's features, if a drafter reads them
};

/// The rank drafts chains of tokens for its requests in turn, a few tokens in each call of a
/// drafter. The window limits how far the rank runs ahead of the committed tokens. Drafters are
/// asked in order, each for the requests for which the drafters before it found nothing.
///
/// A rank is eager if DraftWindow::eager is set and one call can draft for all its requests. If a
/// drafter can, an eager rank also drafts branches that pay off (policy/length/outcomes.hpp). A
/// branch has the drafter's second choice in place of one of the chain's tokens, and tokens drafted
/// after it. If the target samples this choice, the branch becomes the chain, and the verifier's
/// next step has a draft. Without a branch that step has no draft, because it begins before the
/// rank hears of the rejected token. A verifier for which rows are cheap verifies branches together
/// with the chain.
///
/// A head, such as EAGLE's, drafts from the target's features, which verifiers send. Past the last
/// position with target features the head goes on from its own features, and computes the later
/// positions again when the target's features for them come. If some features never come, because
/// the request moved or a mailbox was full, the head begins anew with the next features that come.
///
/// Only the coordinator is trusted. Other senders may have been drafter ranks, and drafter ranks
/// can send anything. Invalid messages are dropped, and counted if they are commits or features.
class DrafterRank final : public protocol::Participant {
 public:
  /// `drafters`: not empty. References outlive this.
  DrafterRank(Mailbox& mailbox, const Clock& clock,
              std::vector<std::unique_ptr<draft::Drafter>> drafters, TelemetrySink& telemetry,
              const DrafterOptions& options);

  protocol::Turn turn() override;
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_place_; }
  /// Totals so far. Fields that this class does not count have their default values.
  [[nodiscard]] RankSummary summary() const { return summary_; }
  /// [drafters] How many drafted tokens were compared with the response, and how many were right.
  [[nodiscard]] std::span<const DraftTally> tallies() const { return tallies_; }

 private:
  struct OpenRequest {
    int verifier = 0;
    std::uint64_t version = 0;  ///< DraftOpen::version
    std::int32_t response = 0;  ///< number of response tokens that the verifier has sent
    DraftedText ahead;          ///< tokens drafted after the committed ones
  };
  /// A request for which the current draft() has found no draft yet.
  struct Asked {
    RequestId id;
    OpenRequest* request = nullptr;
  };
  /// A branch, perhaps not begun, that might get another token in the current draft().
  struct Outcome {
    RequestId id;
    std::int32_t leaves = 0;  ///< response index at which the branch leaves the chain
    double chance = 0;  ///< probability that the target samples the text up to the branch's end
  };
  /// The rank answers a verifier's messages soon, at least by an empty message (kSignSeconds).
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
  /// Number of tokens in a complete piece. A piece is the part of a chain that a message carries.
  [[nodiscard]] int piece() const { return eager() ? 1 : options_.window.tokens; }
  [[nodiscard]] int most_ahead() const { return protocol::most_ahead(window()); }
  [[nodiscard]] bool at_limit(const OpenRequest& r) const {
    return static_cast<int>(r.ahead.chain.size()) >= most_ahead();
  }
  /// Whether drafters may be asked to extend the request's chain. They may not, for instance, while
  /// a whole piece is unsent because the verifier's mailbox is full.
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
  RequestId next_;             ///< the next draft() begins with this request, or the next in order
  double held_up_since_ = -1;  ///< time since which the rank waits for verifiers; -1: not waiting
  bool over_ = false;
  std::optional<policy::Placement> next_place_;
  RankSummary summary_;
  std::vector<DraftTally> tallies_;
  std::int32_t branching_ = -1;  ///< index of the drafter that drafts branches; -1: none does
  policy::AcceptanceModel acceptance_;
  policy::FadingShare second_choices_;  ///< share that is right where the first choice was wrong
  std::uint32_t drawn_ = 0;             ///< number of random numbers drawn so far
  double answered_ = -1;                ///< time of the last DraftCommits; -1: none yet
  double between_answers_ = 0;          ///< average seconds between DraftCommits; 0: not known

  // State of the current draft().
  std::vector<Asked> asked_;       ///< requests without a draft yet
  std::vector<Outcome> outcomes_;  ///< branches to be extended
  std::vector<draft::DraftSlot> slots_;
  std::vector<std::vector<TokenId>> assumed_;  ///< [>= slots] drafted tokens before the new ones
  std::vector<TokenId> tokens_;                ///< [slots, window] new tokens
  std::vector<TokenId> runners_up_;            ///< [slots, window] second choices
  std::vector<std::int32_t> parents_;          ///< [slots, window] DraftOutput::parents
  std::vector<float> path_scores_;             ///< [slots, window] DraftOutput::scores
};

}  // namespace paceline::roles
