// Speculation on a verifier, the leader of a group of ranks that compute the target model. The
// Speculator asks drafters for drafts, and learns how often the drafts are accepted.
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

/// Numbers of verified and of accepted tokens by drafter, position in the draft, batch size and
/// response length. cells() is sorted by these four keys. Batch sizes and response lengths are
/// rounded down to powers of two. Used by one thread.
class AcceptanceCounts {
 public:
  /// Counts a verified token. `position`: 1 for a token right after the text that the drafter was
  /// given. `batch`: decoding requests in the step. `response`: response tokens before the step.
  void add(int drafter, int position, std::uint32_t batch, std::uint32_t response, bool accepted) {
    Count& count = counts_[{drafter, position, std::bit_floor(batch), std::bit_floor(response)}];
    ++count.drafted;
    count.accepted += accepted ? 1 : 0;
  }
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
  /// Limit on a step's draft tokens, divided equally among its decoding requests; 0: no such limit.
  int step_tokens = 0;
};

/// In each step the policy chooses which drafters may be asked, and how many levels each request's
/// draft tree may have. The drafters are asked in roster order: the first for all requests, a later
/// one for those for which it is expected to do better than the best draft so far. The draft with
/// the highest expected number of accepted tokens is kept. From time to time a drafter is asked to
/// draft for one request on trial, whatever is expected of it, because the acceptance of a drafter
/// that is never asked stays unknown. Its draft then replaces the best draft so far.
///
/// A drafter that runs ahead drafts on other ranks while the verifier computes a step. Its drafts
/// delay no step, so all are wanted and kept, at any length. A request's kept drafts are joined
/// into one tree, of which the policy selects the tokens to verify. The path that agrees longest
/// with the target is accepted (SpecActor, section 4.2: best of N drafters).
///
/// A token's expected acceptance assumes that its parent is accepted. It is the token's score
/// divided by its parent's, calibrated by how often the target accepted the drafter's tokens with
/// similar quotients. Not thread-safe.
class Speculator {
 public:
  /// `roster`: each entry has a drafter. The policy names drafters by index in the roster. The
  /// clock must outlive this object. Throws std::invalid_argument on an empty roster.
  Speculator(DrafterRoster roster, std::unique_ptr<policy::DraftLengthPolicy> policy,
             const draft::DraftLimits& limits, const Clock& clock, SpeculatorOptions options = {});

  [[nodiscard]] const DrafterRoster& roster() const { return roster_; }
  /// Begins to draft for a request. `method`: index of the only drafter to ask; absent: any.
  void start(const Admission& request, OptionalIndex method = {});
  /// Forgets a request. start() may bring it back.
  void leave(RequestId id);
  /// Whether the last draft() asked a draft model that can lend its memory to KV (ElasticMemory).
  [[nodiscard]] bool asked_models() const { return asked_models_; }
  /// Whether some drafter reads features of the target, so that observe() must be called.
  [[nodiscard]] bool observes() const { return !readers_.empty(); }
  /// Gives drafters the features of the rows that a step computed. Call before the step's commit().
  void observe(std::span<const engine::Computed> computed, engine::StepRunner& runner);
  /// Returns one draft, perhaps empty, for each of `decoding`; an empty span if the policy wants no
  /// drafts and nothing is foretold. The result is valid until the next call. `prefill_rows`: limit
  /// on the prompt rows of the same step. `foretold`: empty, or for each of `decoding` its next
  /// tokens, if any, that another group has already committed (races.hpp). Whatever the policy
  /// chooses, each draft begins with the foretold tokens for which it has room, because they will
  /// almost certainly be accepted.
  [[nodiscard]] std::span<const engine::DraftTree> draft(
      std::span<const engine::Decoding> decoding, int prefill_rows,
      std::span<const std::span<const TokenId>> foretold = {});
  /// Takes the tokens that the step committed. Forgets finished requests. The drafters are told of
  /// the tokens before they are next asked for drafts, and at the latest when no request is left.
  /// `seconds`: duration of the step, without draft() and without computing pictures.
  void commit(std::span<const engine::Committed> committed, double seconds);

  /// Duration of the last draft(); 0 if it returned an empty span.
  [[nodiscard]] double draft_seconds() const { return draft_seconds_; }
  /// Draft tokens accepted in the last commit(), foretold ones included.
  [[nodiscard]] std::uint32_t accepted() const { return step_accepted_; }
  /// Calls of draft models and heads on this rank in the last draft(), summed over the requests.
  [[nodiscard]] std::uint32_t draft_calls() const { return step_calls_; }
  /// The drafter of each request's latest verified draft, and the probability that the drafter's
  /// next token is accepted. Of several drafts in one step, the one accepted furthest counts.
  [[nodiscard]] std::vector<protocol::DraftedFor> drafted_for() const;
  [[nodiscard]] std::vector<AcceptanceCell> acceptance() const { return counts_.cells(); }
  /// [drafters] Tried and accepted tokens. If tokens of a draft tree share a parent, only the
  /// likeliest is included, so that the rates of trees and chains can be compared.
  [[nodiscard]] std::span<const DraftTally> tallies() const { return tallies_; }

 private:
  struct Draft {
    int drafter = 0;
    int foretold = 0;  ///< number of foretold tokens; the drafter's own tokens follow them
    int asked = 0;     ///< limit on the levels of the draft tree
    double expected_tokens = 0;  ///< expected number of accepted tokens, foretold ones included
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::vector<float> scores;        ///< [tokens] drafter's score of the path to the token
    std::vector<double> conditional;  ///< [tokens] path's score / score of the parent's path
    std::vector<double> values;       ///< [tokens] calibrated P(path to the token is accepted)
    /// [levels] token indices of the draft's longest path that agrees with the step's commits
    std::vector<std::int32_t> on_text;
    void resize(int count);
  };
  using Acceptance = std::vector<policy::RequestAcceptance>;  ///< [drafters]
  struct SpeculatedRequest {
    Acceptance acceptance;
    OptionalIndex method;      ///< the only drafter of this request; absent: not limited to one
    OptionalIndex drafted_by;  ///< drafter of the last verified draft; absent: none yet
  };

  /// Probability that the target accepts the drafter's next token for the request.
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
  CommitLog log_;                               ///< commits that drafters were not told of yet
  std::vector<draft::FeatureReader*> readers_;  ///< drafters that read features
  int step_tokens_ = 0;                         ///< SpeculatorOptions::step_tokens
  bool lags_ = false;     ///< some drafter has state that falls behind the text (LaggingState)
  bool listens_ = false;  ///< some drafter runs ahead, and must be told of commits at once
  std::vector<std::byte> features_;

  // State of the current step. Vectors are [decoding requests] unless noted otherwise. drafts_,
  // proposed_, joined_ and other_ never shrink, so their last entries may be of earlier steps.
  bool drafted_ = false;       ///< the policy wants a draft for some request
  bool asked_models_ = false;  ///< asked_models()
  /// A drafter that is asked to draft for a request even if no better draft is expected of it.
  struct Trial {
    std::size_t drafter = 0;  ///< index in the roster, >= 1
    std::size_t request = 0;  ///< index in the batch
  };
  std::optional<Trial> trial_;
  std::uint64_t draft_steps_ = 0;  ///< draft() calls so far that returned drafts
  double draft_seconds_ = 0;
  std::uint32_t step_drafted_ = 0;
  std::uint32_t step_calls_ = 0;
  std::uint32_t step_accepted_ = 0;
  policy::DraftQuery query_;
  std::vector<double> acceptance_;
  std::vector<policy::DraftHope> hopes_;  ///< [drafters, decoding requests]
  std::vector<int> longest_draft_;
  std::vector<int> lag_;
  int most_tokens_ = 0;  ///< limit on the draft tokens of any one request in this step
  std::vector<int> lengths_;
  std::vector<std::int32_t> response_;
  std::vector<const SpeculatedRequest*> decoded_;
  std::vector<std::span<const TokenId>> foretold_;  ///< foretold tokens that the draft has room for
  /// [requests, drafts] Entry 0: the draft made here. Then: drafts of drafters that run ahead.
  std::vector<std::vector<Draft>> drafts_;
  std::vector<std::size_t> beside_;  ///< number of this step's drafts in drafts_ after entry 0
  /// [requests, drafts] All drafts of this step, verified or not, without scores and values.
  std::vector<std::vector<Draft>> proposed_;
  std::vector<std::size_t> proposals_;  ///< number of this step's drafts in proposed_
  std::vector<double> expected_;        ///< expected accepted tokens of the best draft so far
  std::vector<int> most_drafted_;       ///< most_tokens_, or Decoding::most_drafted if lower
  std::vector<DraftPart> parts_;        ///< [drafts of one request]
  std::vector<JoinedDraft> joined_;
  std::vector<Draft> other_;                ///< [slots] drafts of the drafter that is being asked
  std::vector<draft::DraftSlot> slots_;     ///< [slots] requests for which this drafter drafts
  std::vector<std::int32_t> slot_request_;  ///< [slots] index in the batch
  std::vector<double> values_;  ///< [tokens] values of all joined drafts, without foretold tokens
  std::vector<int> offsets_;    ///< [requests + 1] where a request's values begin in values_
  std::vector<std::uint8_t> keep_;  ///< [tokens] as in values_; 1: the token is verified
  std::vector<engine::DraftTree> trees_;
};

}  // namespace paceline::speculation
