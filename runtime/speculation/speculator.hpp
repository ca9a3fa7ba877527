// Speculation of one verifier: its drafters, their draft lengths, and their acceptance.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/core/optional_index.hpp"
#include "runtime/core/request_map.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/policy/length/acceptance.hpp"
#include "runtime/policy/length/draft_length.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/speculation/commit_log.hpp"
#include "runtime/speculation/drafter_roster.hpp"
#include "runtime/speculation/joined_draft.hpp"

namespace paceline::speculation {

/// Counts of drafted and of accepted tokens, by drafter, position in the draft, batch and length of
/// the response; both sizes are rounded down to powers of two. Used by one thread.
class AcceptanceCounts {
 public:
  /// Counts a verified token at `position` of a draft (1: right after the committed text). `batch`:
  /// decoding requests of the step. `response`: response tokens that the request had.
  void add(int drafter, int position, std::uint32_t batch, std::uint32_t response, bool accepted) {
    Count& count = counts_[{drafter, position, std::bit_floor(batch), std::bit_floor(response)}];
    ++count.drafted;
    count.accepted += accepted ? 1 : 0;
  }
  /// The counts, ordered by drafter, position, batch and response (AcceptanceCell::progress).
  [[nodiscard]] std::vector<AcceptanceCell> cells() const {
    std::vector<AcceptanceCell> cells;
    for (const auto& [key, count] : counts_) {
      const auto& [drafter, position, batch, progress] = key;
      cells.push_back({static_cast<std::uint32_t>(drafter), static_cast<std::uint32_t>(position),
                       batch, progress, count.drafted, count.accepted});
    }
    return cells;
  }

 private:
  struct Count {
    std::uint64_t drafted = 0;
    std::uint64_t accepted = 0;
  };
  std::map<std::tuple<int, int, std::uint32_t, std::uint32_t>, Count> counts_;
};

struct SpeculatorOptions {
  /// Most draft tokens of a step over all its requests; 0: each request's own limit.
  int step_tokens = 0;
};

/// Joins drafters and policy. In each step the policy says how far to draft for every request. Of
/// all drafters' drafts each request gets the one with most tokens expected to be accepted. The
/// policy then says which of its tokens are worth verifying. Drafters are asked in roster order,
/// the cheap ones first. A later drafter is asked only for requests where it is expected to do
/// better than the earlier ones. Now and then a later drafter drafts for another request on trial:
/// its acceptance would never be known otherwise.
///
/// A draft of a drafter that runs ahead costs nothing. All drafts of this kind that have arrived
/// are verified together with the draft that is made here, as branches of one tree. The longest
/// branch that agrees counts (SpecActor, section 4.2: the best of N drafters; here in one step of
/// one verifier).
///
/// Expectations are drafters' scores, calibrated by the target's acceptance. Not thread-safe.
class Speculator {
 public:
  /// `roster`: not empty, with a drafter in each entry. The policy names drafters by index in the
  /// roster. The clock outlives this. Throws std::invalid_argument on an empty roster.
  Speculator(DrafterRoster roster, std::unique_ptr<policy::DraftLengthPolicy> policy,
             const draft::DraftLimits& limits, const Clock& clock, SpeculatorOptions options = {});

  [[nodiscard]] const DrafterRoster& roster() const { return roster_; }
  /// Begins to draft for a request. `method`: the only drafter that may draft for it; absent: any.
  void start(const Admission& request, OptionalIndex method = {});
  /// Forgets a request that goes elsewhere; start() brings it back.
  void leave(RequestId id);
  /// Whether the last step asked for drafts of a drafter that can give memory back.
  [[nodiscard]] bool asked_models() const { return asked_models_; }
  /// Whether some drafter reads features of the target, and observe() is to be called.
  [[nodiscard]] bool observes() const { return !readers_.empty(); }
  /// Reads the features of the rows that a step computed. To be called before the step's commit().
  void observe(std::span<const engine::Computed> computed, engine::StepRunner& runner);
  /// Returns one draft, perhaps empty, for each of `decoding`, or no drafts at all. Valid until the
  /// next call. `prefill_rows`: prompt rows that share the step. `foretold`: empty, or for each of
  /// `decoding` the next tokens according to the group that is ahead in a race (races.hpp). A draft
  /// begins with the foretold tokens, as many as it has room for, whatever the policy says: each
  /// of these tokens would take a step of its own otherwise.
  [[nodiscard]] std::span<const engine::DraftTree> draft(
      std::span<const engine::Decoding> decoding, int prefill_rows,
      std::span<const std::span<const TokenId>> foretold = {});
  /// Takes in the commits of the step, which verified the drafts of draft() or none. Finished
  /// requests are forgotten. Drafters hear of the commits at the latest before they are next asked,
  /// or when all requests are done. `seconds`: duration of the step without draft().
  void commit(std::span<const engine::Committed> committed, double seconds);

  [[nodiscard]] double draft_seconds() const { return draft_seconds_; }    ///< of the last draft()
  [[nodiscard]] std::uint32_t accepted() const { return step_accepted_; }  ///< of the last commit()
  /// Calls of draft models and heads in the last draft().
  [[nodiscard]] std::uint32_t draft_calls() const { return step_calls_; }
  /// The drafter that last drafted for each request, if any, and its acceptance for the request.
  [[nodiscard]] std::vector<protocol::DraftedFor> drafted_for() const;
  [[nodiscard]] std::vector<AcceptanceCell> acceptance() const { return counts_.cells(); }
  /// [drafters] Tried and accepted tokens. At most one of a tree's siblings can be accepted, so
  /// only the likeliest sibling counts, like the token of a chain.
  [[nodiscard]] std::span<const DraftTally> tallies() const { return tallies_; }

 private:
  /// A draft of one drafter, with the expected acceptance of each token.
  struct Draft {
    int drafter = 0;
    int foretold = 0;  ///< number of foretold tokens, after which the drafter's tokens come
    int asked = 0;     ///< levels that the drafter was asked for
    double expected_tokens = 0;  ///< expected to be accepted, foretold ones included
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::vector<float> scores;          ///< [tokens] the drafter's score of the path
    std::vector<double> conditional;    ///< [tokens] score, given the parent's path
    std::vector<double> values;         ///< [tokens] calibrated probability of the path
    std::vector<std::int32_t> on_text;  ///< [levels] index of the draft token that was committed
    void resize(int count);
  };
  using Acceptance = std::vector<policy::RequestAcceptance>;  ///< [drafters]
  struct SpeculatedRequest {
    Acceptance acceptance;
    OptionalIndex method;      ///< the only drafter of this request; absent: any may draft
    OptionalIndex drafted_by;  ///< drafter of the last draft; absent: nothing was drafted yet
  };

  /// Probability that the next token that the drafter drafts for the request is accepted.
  [[nodiscard]] double next_accepted(const SpeculatedRequest& request, std::size_t drafter) const;
  [[nodiscard]] policy::DraftHope hope(const SpeculatedRequest& request, std::size_t drafter) const;
  [[nodiscard]] bool serves(std::size_t drafter, const SpeculatedRequest& request) const;
  void describe(std::span<const engine::Decoding> decoding,
                std::span<const std::span<const TokenId>> foretold);
  void describe_hopes();
  void choose_trial(std::span<const engine::Decoding> decoding);
  [[nodiscard]] bool on_trial(int drafter, std::size_t request) const;
  void ask(int drafter, std::span<const engine::Decoding> decoding);
  void begin(Draft& draft, int drafter, std::span<const TokenId> foretold, int tokens) const;
  void calibrate(Draft& draft) const;
  [[nodiscard]] std::span<Draft> drafts_of(std::size_t request) {
    return std::span(drafts_[request]).first(1 + beside_[request]);
  }
  void take(int drafter, std::size_t request, Draft& draft);
  void note_proposed(std::size_t request, const Draft& draft);
  void judge_proposed(const engine::Committed& committed);
  void select();
  void leave_verified(std::size_t request);
  static void find_on_text(Draft& draft, std::span<const TokenId> committed);
  void record(const engine::Committed& committed);
  void record(const Draft& draft, const engine::Committed& committed);
  void tally(const Draft& draft, const engine::Committed& committed);

  DrafterRoster roster_;
  std::unique_ptr<policy::DraftLengthPolicy> policy_;
  draft::DraftLimits limits_;
  const Clock& clock_;
  policy::AcceptanceModel model_;
  RequestMap<SpeculatedRequest> requests_;
  AcceptanceCounts counts_;
  std::vector<DraftTally> tallies_;
  CommitLog log_;                               ///< commits that drafters have yet to be told
  std::vector<draft::FeatureReader*> readers_;  ///< drafters that read features
  int step_tokens_ = 0;                         ///< 0: no bound
  bool lags_ = false;                           ///< some drafter has state that falls behind
  bool listens_ = false;  ///< some drafter runs ahead, and must hear of commits at once
  std::vector<std::byte> features_;

  // The step under way; vectors are indexed by decoding request unless said otherwise.
  bool drafted_ = false;       ///< some draft was asked for
  bool asked_models_ = false;  ///< a drafter that gives memory back was asked
  /// The request for which a later drafter is asked on trial, whatever its draft promises.
  struct Trial {
    std::size_t drafter = 0;  ///< index in the roster, >= 1
    std::size_t request = 0;  ///< index in the batch
  };
  std::optional<Trial> trial_;     ///< trial of the current step
  std::uint64_t draft_steps_ = 0;  ///< steps in which a draft was asked for
  double draft_seconds_ = 0;
  std::uint32_t step_drafted_ = 0;
  std::uint32_t step_calls_ = 0;
  std::uint32_t step_accepted_ = 0;
  policy::DraftQuery query_;
  std::vector<double> acceptance_;
  std::vector<policy::DraftHope> hopes_;  ///< [drafters, decoding requests]
  std::vector<int> longest_draft_;
  std::vector<int> lag_;
  int most_tokens_ = 0;  ///< most tokens of a request's draft
  std::vector<int> lengths_;
  std::vector<std::int32_t> response_;
  std::vector<const SpeculatedRequest*> decoded_;
  std::vector<std::span<const TokenId>> foretold_;  ///< foretold tokens that the draft has room for
  /// The best draft made here, then the drafts of drafters that run ahead.
  std::vector<std::vector<Draft>> drafts_;
  std::vector<std::size_t> beside_;  ///< number of drafts of drafters that run ahead
  /// All drafts, verified or not, without scores and values.
  std::vector<std::vector<Draft>> proposed_;
  std::vector<std::size_t> proposals_;  ///< number of drafts in proposed_
  std::vector<double> expected_;        ///< expected accepted tokens of the best draft so far
  std::vector<int> most_drafted_;       ///< number of rows free for drafts
  std::vector<DraftPart> parts_;        ///< [drafts of one request]
  std::vector<JoinedDraft> joined_;
  std::vector<Draft> other_;             ///< [asked] one drafter's proposals, before they are taken
  std::vector<draft::DraftSlot> slots_;  ///< [asked]
  std::vector<std::int32_t> slot_request_;  ///< [asked]
  std::vector<double> values_;              ///< [tokens] values of drafters' tokens, all requests
  std::vector<int> offsets_;                ///< [requests + 1]
  std::vector<std::uint8_t> keep_;          ///< [tokens]
  std::vector<engine::DraftTree> trees_;
};

}  // namespace paceline::speculation
