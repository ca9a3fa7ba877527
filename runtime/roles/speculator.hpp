// Speculation of one verifier: its drafters, how far they draft, and what became of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/clock.hpp"
#include "runtime/core/cost_table.hpp"
#include "runtime/core/draft_history.hpp"
#include "runtime/core/interfaces.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/policy/acceptance.hpp"
#include "runtime/policy/draft_length.hpp"
#include "runtime/policy/reconfiguration.hpp"
#include "runtime/roles/acceptance_counts.hpp"

namespace paceline::roles {

/// Algorithm 2 (runtime/policy/reconfiguration.hpp): how requests that accept little are drafted
/// for is thought of anew now and then.
struct Reconfiguration {
  std::uint32_t every = policy::kReconfigureEvery;  ///< tokens of a request; at least 1
  CostTable costs;                                  ///< of the verifier's steps
  std::vector<DrafterCosts> drafters;               ///< [drafters] of each, where it drafts
  int window = 8;  ///< tokens that drafter ranks run ahead by, where nothing else is said
  double groups_per_drafter = 1;  ///< verifier groups that a drafter rank drafts for
  int max_batch = 64;             ///< requests of one call of a drafter
};

/// A request that is drafted for in another way from now on.
struct PlannedRequest {
  RequestId id;
  std::uint32_t tokens = 0;  ///< of its response by now
  SpeculationMode mode = SpeculationMode::plain;
  std::uint32_t window = 0;  ///< longest draft; 0: none
};

struct SpeculatorOptions {
  /// [drafters] How likely each one's tokens are accepted, as known before the run; empty: nothing
  /// is known.
  std::vector<double> acceptance = {};
  std::optional<Reconfiguration> reconfigure = {};  ///< absent: never
};

/// Joins drafters and policy. Each step the policy says how far to draft for every request; each
/// request gets the draft from which most is expected, of all drafters; the policy says which of
/// the tokens are worth verifying. The drafters are asked in their order, and a later one only for
/// the requests where it is expected to do better than those before: so cheap ones come first. Now
/// and then a later one drafts for some request regardless, or what it can do would never be known.
///
/// Expectations are drafters' scores calibrated by what the target accepted.
///
/// A request that was reconfigured is drafted for by the drafters of its mode alone, and by no more
/// tokens than its window; drafter ranks drop it where they are not wanted. That holds until its
/// next reconfiguration, where one that is no longer below the mean is treated like all others
/// again; and it is forgotten where the request moves to. Not thread-safe.
class Speculator {
 public:
  /// `drafters` must not be empty; the clock outlives this.
  Speculator(std::vector<std::unique_ptr<draft::Drafter>> drafters,
             std::unique_ptr<policy::DraftLengthPolicy> policy, const draft::DraftLimits& limits,
             const Clock& clock, SpeculatorOptions options = {});

  /// A request will be decoded.
  void start(const engine::Admission& request);
  /// It goes elsewhere; it may come back by start().
  void leave(RequestId id);
  /// Drafts for the step, one for each of `decoding` or none at all; they may be empty. Valid until
  /// the next call. `prefill_rows`: prompt rows that share the step.
  [[nodiscard]] std::span<const engine::DraftTree> draft(std::span<const engine::Decoding> decoding,
                                                         int prefill_rows);
  /// What the step committed, those drafts or none verified in it; a finished request is forgotten.
  /// Drafters hear of it at the latest before they are next asked, or when all requests are done.
  /// `seconds`: the step without draft().
  void commit(std::span<const engine::Committed> committed, double seconds);

  [[nodiscard]] double draft_seconds() const { return draft_seconds_; }    ///< of the last draft()
  [[nodiscard]] std::uint32_t accepted() const { return step_accepted_; }  ///< of the last commit()
  /// Whom the last commit() reconfigured.
  [[nodiscard]] std::span<const PlannedRequest> planned() const { return planned_; }
  [[nodiscard]] std::vector<AcceptanceCell> acceptance() const { return counts_.cells(); }
  /// [drafters] Of siblings in a tree the likeliest counts alone, as it would have been the
  /// chain's: of several at most one can be accepted.
  [[nodiscard]] std::span<const DraftTally> tallies() const { return tallies_; }

 private:
  /// A draft with what is expected of each token.
  struct Draft {
    int drafter = 0;
    double expected = 0;  ///< tokens accepted
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::vector<float> scores;        ///< of the path, by the drafter
    std::vector<double> conditional;  ///< score given the parent's path
    std::vector<double> values;       ///< calibrated probability of the path
    void resize(int count);
  };
  using Acceptance = std::vector<policy::RequestAcceptance>;  ///< [drafters]
  struct Request {
    Acceptance acceptance;
    std::uint32_t response = 0;               ///< tokens
    std::optional<policy::RequestPlan> plan;  ///< absent: it is treated like all others
    int plan_batch = 0;                       ///< decoding requests when it was made
  };
  /// What drafters have yet to be told of a request.
  struct Untold {
    RequestId id;
    std::vector<TokenId> tokens;
    bool finished = false;
  };

  [[nodiscard]] double expected(const Acceptance& request, int drafter, int length) const;
  [[nodiscard]] double estimate(const Request& request, std::size_t drafter) const;
  [[nodiscard]] bool serves(std::size_t drafter, const Request& request) const;
  void describe(std::span<const engine::Decoding> decoding);
  [[nodiscard]] bool on_trial(int drafter, std::size_t request) const;
  void ask(int drafter, std::span<const engine::Decoding> decoding);
  void calibrate(Draft& draft) const;
  void select();
  void record(const engine::Committed& committed);
  void tally(const Draft& draft, const engine::Committed& committed);
  void reconfigure(std::span<const engine::Committed> committed);
  void follow(RequestId id, Request& request, std::optional<policy::RequestPlan> plan);
  void remember(const engine::Committed& committed);
  void tell(double now);

  std::vector<std::unique_ptr<draft::Drafter>> drafters_;
  std::unique_ptr<policy::DraftLengthPolicy> policy_;
  draft::DraftLimits limits_;
  const Clock& clock_;
  SpeculatorOptions options_;
  policy::AcceptanceModel model_;
  std::map<RequestId, Request> requests_;
  AcceptanceCounts counts_;
  std::vector<DraftTally> tallies_;
  bool listens_ = false;             ///< some drafter wants to hear of commits at once
  std::vector<Untold> untold_;       ///< the first untold_requests_ of them
  std::size_t untold_requests_ = 0;  ///< fewer than there are, so that their memory is used again
  std::size_t untold_tokens_ = 0;    ///< of all of them
  std::size_t next_untold_ = 0;      ///< request that is likely committed next

  // Of the step under way; vectors are indexed by decoding request unless said otherwise.
  bool drafted_ = false;           ///< some draft was asked for
  std::uint64_t draft_steps_ = 0;  ///< in which one was
  double draft_seconds_ = 0;
  std::uint32_t step_drafted_ = 0;
  std::uint32_t step_accepted_ = 0;
  policy::DraftQuery query_;
  std::vector<double> acceptance_;
  std::vector<int> room_;
  std::vector<int> lag_;
  std::vector<int> lengths_;
  std::vector<std::int32_t> response_;
  std::vector<const Request*> known_;
  std::vector<Draft> best_;
  std::vector<Draft> other_;                ///< what a drafter proposes beside them
  std::vector<draft::DraftSlot> slots_;     ///< [asked]
  std::vector<std::int32_t> slot_request_;  ///< [asked]
  std::vector<double> values_;              ///< [tokens] of all requests
  std::vector<int> offsets_;                ///< [requests + 1]
  std::vector<std::uint8_t> keep_;          ///< [tokens]
  std::vector<engine::DraftTree> trees_;
  std::vector<RequestId> due_;  ///< for a reconfiguration
  std::vector<PlannedRequest> planned_;
};

}  // namespace paceline::roles
