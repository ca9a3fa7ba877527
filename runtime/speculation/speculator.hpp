// Speculation of one verifier: its drafters, how far they draft, and what became of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/step_runner.hpp"
#include "runtime/policy/length/acceptance.hpp"
#include "runtime/policy/length/draft_length.hpp"
#include "runtime/protocol/messages.hpp"
#include "runtime/speculation/acceptance_counts.hpp"
#include "runtime/speculation/commit_log.hpp"
#include "runtime/speculation/joined_draft.hpp"
#include "runtime/speculation/request_plans.hpp"

namespace paceline::roles {

struct SpeculatorOptions {
  /// [drafters] How likely each one's tokens are accepted, as known before the run; empty: nothing
  /// is known.
  std::vector<double> acceptance = {};
  std::optional<Reconfiguration> reconfigure = {};  ///< absent: never
  /// [drafters] Those that draft in races alone, and on trial; empty: none. What they cost is then
  /// none of the policy's to reckon with.
  std::vector<bool> reserved = {};
  /// Draft tokens of all requests of a step; 0: as many as each may have.
  int step_tokens = 0;
  /// [drafters] What judges between the levels of each one's drafts; null: they are as long as is
  /// asked for. Empty: all are.
  std::vector<std::shared_ptr<draft::Levels>> levels = {};
};

/// Joins drafters and policy. Each step the policy says how far to draft for every request; each
/// request gets the draft from which most is expected, of all drafters; the policy says which of
/// the tokens are worth verifying. The drafters are asked in their order, as far as the policy
/// says, and a later one only for the requests where it is expected to do better than those before:
/// so cheap ones come first. Now and then a later one drafts for some request regardless, or what
/// it can do would never be known.
///
/// What runs ahead is there or is not, and costs nothing: it is verified beside the draft that is
/// made here, and beside others of its kind, as branches of one tree. The longest branch that
/// agrees counts (SpecActor, section 4.2: the best of N drafters; here in one step of one
/// verifier).
///
/// Expectations are drafters' scores calibrated by what the target accepted.
///
/// A request with a plan is drafted for by the drafters of its mode alone, and no further than the
/// plan says; drafter ranks drop it where they are not wanted. Not thread-safe.
class Speculator {
 public:
  /// `drafters` must not be empty; the clock outlives this.
  Speculator(std::vector<std::unique_ptr<draft::Drafter>> drafters,
             std::unique_ptr<policy::DraftLengthPolicy> policy, const draft::DraftLimits& limits,
             const Clock& clock, SpeculatorOptions options = {});

  /// A request will be decoded. `method`: index of the only drafter that drafts for it; -1: any.
  void start(const Admission& request, int method = -1);
  /// It goes elsewhere; it may come back by start().
  void leave(RequestId id);
  /// Drafters that hold memory of note give it back, and draft nothing until they are resumed.
  void suspend_models();
  /// A part of taking it again (draft::Drafter::resume()). True: all have it.
  [[nodiscard]] bool resume_models();
  /// Whether the last step asked any of them for drafts.
  [[nodiscard]] bool asked_models() const { return asked_models_; }
  /// Whether some drafter reads features of the target, and observe() is to be called.
  [[nodiscard]] bool observes() const { return observes_; }
  /// What the step computed, before what it committed is told by commit(). Reads the features.
  void observe(std::span<const engine::Computed> computed, engine::StepRunner& runner);
  /// Drafts for the step, one for each of `decoding` or none at all; they may be empty. Valid until
  /// the next call. `prefill_rows`: prompt rows that share the step. `foretold`: none, or for each
  /// of `decoding` the tokens that come next, as somebody knows who is ahead (races.hpp): drafts
  /// begin with those, as many as a draft may have, whatever the policy says. Each would be a step
  /// of its own otherwise.
  [[nodiscard]] std::span<const engine::DraftTree> draft(
      std::span<const engine::Decoding> decoding, int prefill_rows,
      std::span<const std::span<const TokenId>> foretold = {});
  /// What the step committed, those drafts or none verified in it; a finished request is forgotten.
  /// Drafters hear of it at the latest before they are next asked, or when all requests are done.
  /// `seconds`: the step without draft().
  void commit(std::span<const engine::Committed> committed, double seconds);

  [[nodiscard]] double draft_seconds() const { return draft_seconds_; }    ///< of the last draft()
  [[nodiscard]] std::uint32_t accepted() const { return step_accepted_; }  ///< of the last commit()
  /// Of draft models and heads, in the last draft().
  [[nodiscard]] std::uint32_t draft_calls() const { return step_calls_; }
  /// What drafted last for each request, and how well, if anything did.
  [[nodiscard]] std::vector<DraftedFor> drafted_for() const;
  /// Whom the last commit() reconfigured.
  [[nodiscard]] std::span<const PlannedRequest> planned() const { return plans_.changed(); }
  [[nodiscard]] std::vector<AcceptanceCell> acceptance() const { return counts_.cells(); }
  /// [drafters] Of siblings in a tree the likeliest counts alone, as it would have been the
  /// chain's: of several at most one can be accepted.
  [[nodiscard]] std::span<const DraftTally> tallies() const { return tallies_; }

 private:
  /// A draft of one drafter, with what is expected of each token.
  struct Draft {
    int drafter = 0;
    int foretold = 0;            ///< tokens that it begins with; the drafter's come after them
    int asked = 0;               ///< levels, of the drafter
    double expected_tokens = 0;  ///< accepted of it, those that are foretold among them
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::vector<float> scores;          ///< of the path, by the drafter
    std::vector<double> conditional;    ///< score given the parent's path
    std::vector<double> values;         ///< calibrated probability of the path
    std::vector<std::int32_t> on_text;  ///< [levels] tokens that the target said, after committing
    void resize(int count);
  };
  using Acceptance = std::vector<policy::RequestAcceptance>;  ///< [drafters]
  struct Request {
    Acceptance acceptance;
    int method = -1;      ///< the only drafter that drafts for it; -1: any
    int drafted_by = -1;  ///< drafter of its last draft; -1: none yet
  };
  /// A decoding request of the step.
  struct Decoded {
    const Request* request = nullptr;
    const policy::RequestPlan* plan = nullptr;  ///< null: it has none
  };

  /// P(the next token that the drafter drafts for it is accepted).
  [[nodiscard]] double next_accepted(const Request& request, std::size_t drafter) const;
  [[nodiscard]] policy::DraftHope hope(const Request& request, std::size_t drafter) const;
  [[nodiscard]] bool serves(std::size_t drafter, const Decoded& d) const;
  void describe(std::span<const engine::Decoding> decoding,
                std::span<const std::span<const TokenId>> foretold);
  void describe_hopes();
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
  void reconfigure(std::span<const engine::Committed> committed);

  std::vector<std::unique_ptr<draft::Drafter>> drafters_;
  std::unique_ptr<policy::DraftLengthPolicy> policy_;
  draft::DraftLimits limits_;
  const Clock& clock_;
  policy::AcceptanceModel model_;
  std::map<RequestId, Request> requests_;
  AcceptanceCounts counts_;
  std::vector<DraftTally> tallies_;
  RequestPlans plans_;
  CommitLog log_;                                       ///< what drafters have yet to be told
  std::vector<bool> reserved_;                          ///< [drafters]
  std::vector<std::shared_ptr<draft::Levels>> levels_;  ///< [drafters]
  int step_tokens_ = 0;                                 ///< 0: no bound
  bool listens_ = false;   ///< some drafter wants to hear of commits at once
  bool observes_ = false;  ///< some drafter reads features
  std::vector<std::byte> features_;

  // Of the step under way; vectors are indexed by decoding request unless said otherwise.
  bool drafted_ = false;           ///< some draft was asked for
  bool asked_models_ = false;      ///< of a drafter that gives memory back
  std::uint64_t draft_steps_ = 0;  ///< in which one was
  double draft_seconds_ = 0;
  std::uint32_t step_drafted_ = 0;
  std::uint32_t step_calls_ = 0;
  std::uint32_t step_accepted_ = 0;
  policy::DraftQuery query_;
  std::vector<double> acceptance_;
  std::vector<policy::DraftHope> hopes_;  ///< [drafters, decoding requests]
  std::vector<int> longest_draft_;
  std::vector<int> lag_;
  int most_tokens_ = 0;  ///< of a request's draft
  std::vector<int> lengths_;
  std::vector<std::int32_t> response_;
  std::vector<Decoded> decoded_;
  std::vector<std::span<const TokenId>> foretold_;  ///< as much of it as is drafted
  /// The best of what was drafted here, then what drafters that run ahead have beside it.
  std::vector<std::vector<Draft>> drafts_;
  std::vector<std::size_t> beside_;  ///< of those, how many
  /// Whatever was drafted, also what is not verified: tokens and parents alone.
  std::vector<std::vector<Draft>> proposed_;
  std::vector<std::size_t> proposals_;  ///< of those, how many
  std::vector<double> expected_;        ///< accepted tokens, of the best draft so far
  std::vector<int> most_drafted_;       ///< rows that there are for drafts
  std::vector<DraftPart> parts_;        ///< [drafts of one request]
  std::vector<JoinedDraft> joined_;
  std::vector<Draft> other_;                ///< what a drafter proposes beside them
  std::vector<draft::DraftSlot> slots_;     ///< [asked]
  std::vector<std::int32_t> slot_request_;  ///< [asked]
  std::vector<double> values_;              ///< [tokens] of drafters, of all requests
  std::vector<int> offsets_;                ///< [requests + 1]
  std::vector<std::uint8_t> keep_;          ///< [tokens]
  std::vector<engine::DraftTree> trees_;
};

}  // namespace paceline::roles
