// A rank that drafts for verifiers on other ranks, ahead of them (decoupled speculation, SpecActor
// section 4.1).
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
#include "runtime/core/types.hpp"
#include "runtime/costs/cost_table.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/policy/length/acceptance.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/protocol/participant.hpp"
#include "runtime/roles/drafted_text.hpp"

namespace paceline::roles {

/// Requests of a rank that are few (DrafterOptions::longest). Simulated, specactor-lognormal.yaml
/// on 32 GPUs takes 77.0 s where no number is few, and 72.7, 71.2, 70.6 and 70.3 where 4, 16, 32
/// and 64 are. Each further message costs a real rank more than a simulated one.
inline constexpr std::size_t kFewRequests = 16;

struct DrafterOptions {
  policy::DrafterPlace place;  ///< of this rank
  /// Draft window, in tokens. A draft is at most most_ahead() of the larger of this window and
  /// `longest` ahead of the verifier.
  int window = 4;
  /// Draft window of a rank that has few requests, which sends each token by itself: nobody waits
  /// while it runs far ahead of each, and it hears of refutations sooner. 0: `window`, in pieces.
  int longest = 0;
  /// Tokens after which a draft is sent, at most `window`; 0: `window`.
  int piece = 0;
  int max_batch = 64;  ///< rows of one call
  /// Seconds of a call that drafts one token, by rows, of the first drafter that drafts branches;
  /// without points nothing is drafted for outcomes.
  CostCurve calls = {};
  std::uint64_t shuffle = 0;     ///< not 0: seed by which outcomes are drafted for at random
  DType features = DType::bf16;  ///< of the target's features, where a drafter reads them
};

/// The rank drafts a few tokens for each of its requests in turn, as far ahead of the verifier's
/// answers as the window allows. Drafters are asked in order, each for the requests for which the
/// earlier ones found nothing. Drafts are chains.
///
/// With few requests it also drafts for outcomes, as far as that pays (policy/length/outcomes.hpp):
/// branches that leave a request's chain for the drafter's second choice. Where the target goes one
/// of these ways, the branch becomes the chain, and its draft is there when the verifier's step
/// ends. Else the verifier's next step would have none, for its drafter hears of a refutation only
/// when that step has begun. Where rows are cheap, the verifier tries branches beside the chain.
///
/// A head drafts from the target's features, which verifiers send. Past the last position that has
/// some it goes on from its own features, as EAGLE's chain does, and computes these rows anew once
/// the target's features have come. Where features never came (a request moved, a mailbox was
/// full), it begins anew with the next features that come.
///
/// No message is trusted: its sender may have been a drafter, which may send anything. Contents
/// that make no sense are counted (RankSummary::invalid) and dropped.
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
  /// [drafters] Drafted tokens that were tried and accepted, drafts that came too late included.
  [[nodiscard]] std::span<const DraftTally> tallies() const { return tallies_; }

 private:
  struct OpenRequest {
    int verifier = 0;
    std::uint64_t version = 0;  ///< of the request's holder, the verifier
    std::int32_t response = 0;  ///< committed tokens
    DraftedText ahead;          ///< drafted after them
  };
  /// A branch that might be drafted further.
  struct Outcome {
    RequestId id;
    std::int32_t leaves = 0;
    double chance = 0;  ///< that the target says all the branch's tokens
  };
  /// A verifier that sends a message gets one back within kSignSeconds, be it without drafts.
  struct Correspondence {
    double said = 0;     ///< time of the last message to the verifier
    bool waits = false;  ///< the verifier has sent a message since
  };
  void receive();
  void take(const Envelope& envelope);
  void open(int from, const protocol::DraftOpen& open);
  void apply(int from, const protocol::DraftCommits& commits);
  void note_answer();
  void observe(int from, const protocol::DraftFeatures& message);
  [[nodiscard]] bool usable(const protocol::DraftFeatures& message) const;
  void judge(OpenRequest& r, std::span<const TokenId> tokens);
  void tally(const DraftedChain& chain, std::size_t agreed, std::span<const TokenId> tokens);
  void waste(std::size_t tokens, std::size_t of_branches);
  void drop(RequestId id);
  bool draft();
  double list_outcomes(RequestId id, const OpenRequest& r);
  void choose_outcomes();
  void ask(std::int32_t drafter);
  void add_slot(RequestId id, std::span<const TokenId> assumed, int most, std::int32_t branch);
  void take_draft(const draft::DraftSlot& slot, std::int32_t drafter, DraftedChain& chain);
  void send_due();
  [[nodiscard]] bool few() const {
    return options_.longest > 0 && requests_.size() <= kFewRequests;
  }
  [[nodiscard]] int window() const {
    return few() ? std::max(options_.window, options_.longest) : options_.window;
  }
  [[nodiscard]] int piece() const {
    if (options_.piece > 0) return std::min(options_.piece, options_.window);
    return few() ? 1 : options_.window;
  }
  [[nodiscard]] bool at_limit(const OpenRequest& r) const {
    return static_cast<int>(r.ahead.chain.size()) >= protocol::most_ahead(window());
  }
  void say(int verifier, const protocol::Drafts& drafts);

  Mailbox& mailbox_;
  const Clock& clock_;
  std::vector<std::unique_ptr<draft::Drafter>> drafters_;
  TelemetrySink& telemetry_;
  DrafterOptions options_;
  std::vector<draft::FeatureReader*> readers_;
  std::size_t feature_bytes_ = 0;  ///< features of a position; 0: no drafter reads features
  std::map<std::uint32_t, std::vector<TokenId>> prompts_;
  std::map<RequestId, OpenRequest> requests_;
  std::map<int, Correspondence> verifiers_;
  RequestId next_;             ///< the next call begins here: not all may fit into one
  double held_up_since_ = -1;  ///< since when the rank waits for verifiers; -1: not waiting
  bool over_ = false;
  std::optional<policy::Placement> next_place_;
  RankSummary summary_;
  std::vector<DraftTally> tallies_;
  std::int32_t branching_ = -1;  ///< the drafter that drafts branches; -1: none does
  policy::AcceptanceModel acceptance_;
  policy::FadingShare second_choices_;  ///< right where the first ones were wrong
  std::uint32_t drawn_ = 0;             ///< random numbers
  double answered_ = -1;                ///< time of the last answer of a verifier; -1: none yet
  double between_answers_ = 0;          ///< seconds, of late; 0: not known

  // State of the call under way.
  std::vector<RequestId> asked_;   ///< requests without a draft yet
  std::vector<Outcome> outcomes_;  ///< to be drafted for beside them
  std::vector<draft::DraftSlot> slots_;
  std::vector<std::vector<TokenId>> assumed_;  ///< of branches
  std::vector<TokenId> tokens_;                ///< [slots, window]
  std::vector<TokenId> runners_up_;            ///< likewise
  std::vector<std::int32_t> parents_;          ///< likewise
  std::vector<float> path_scores_;             ///< likewise
};

}  // namespace paceline::roles
