// Records, during a rollout, the data points on which RADAR's stop policy is trained (RADAR,
// section 2.2, "Dataset"). A point (StopPoint) has, for each level of one draft tree, the
// probabilities that 0, 1, 2 ... tokens would be accepted if drafting stopped after this level.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/policy/length/stop_lengths.hpp"

namespace paceline::speculation {

struct StopRecorderOptions {
  std::int32_t every = 0;  ///< least number of response tokens between two points of a request
  std::int32_t most = 0;   ///< limit on the tokens of a verified tree (policy::StoppedTrees)
  bool foreknows = false;  ///< the head drafts with the noise that the target samples with
};

/// Limit on the tokens of a recorded draft: kStates in each level of the tree except the last.
inline constexpr std::int32_t kMostRecordedRows = (StopPoint::kCalls - 1) * StopPoint::kStates;

/// The recorder is a drafter that wraps a head. For at most one request in a step, it lets the head
/// grow a tree to its full depth. Candidates are the tokens that would be verified if
/// drafting stopped after some level (policy::StoppedTrees). Candidates with children among the
/// candidates become the request's draft. Other requests get no draft. The step that verifies this
/// draft also answers questions: how probable is each candidate under the target, given its parent?
/// From the answers the recorder computes the point. Questions change no response of the run.
///
/// If the head drafts with the target's own noise, a token's probability is not its chance of being
/// accepted. No questions are asked then: each probability is 0 or 1, as the step's samples show.
///
/// A point is recorded only if there is room for kCalls levels and no token is foretold
/// (Speculator::draft()). Points of a request that are more than kCalls tokens apart have no noise
/// in common. Not thread-safe.
class StopRecorder final : public draft::Drafter {
 public:
  /// `telemetry` must outlive this object.
  StopRecorder(std::unique_ptr<draft::Drafter> head, const StopRecorderOptions& options,
               TelemetrySink& telemetry);

  /// Limit on the questions of a step. Each question adds a sample to the step.
  [[nodiscard]] static std::int32_t most_questions(const StopRecorderOptions& options) {
    return options.foreknows ? 0 : StopPoint::kCalls * options.most;
  }
  /// `step`: the step after the last propose(). Returns `step` if there are no questions, or a copy
  /// with the questions after the step's own samples. The copy is valid until the next call.
  [[nodiscard]] const engine::Step& with_questions(const engine::Step& step);
  /// Records the point whose draft the step verified, if any. `sampled`: the results for the step's
  /// own samples, then for the questions.
  void answered(std::span<const kernels::Sampled> sampled);

  void start(const draft::DraftStart& request, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override;
  void finish(RequestId id, double now) override;
  void leave(RequestId id, double now) override;

  [[nodiscard]] bool present() const override { return head_->present(); }
  [[nodiscard]] draft::Capabilities capabilities() override { return head_->capabilities(); }

 private:
  struct Progress {
    NoiseKey noise;
    std::int64_t tokens = 0;  ///< response tokens so far
    std::int64_t due = 0;     ///< number of response tokens from which on a point is due
  };
  /// A point whose draft was made but not verified yet. Tokens are in drafting order.
  struct Pending {
    NoiseKey noise;
    StopPoint point;
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::optional<policy::StoppedTrees> trees;
    std::vector<std::int32_t> samples;    ///< [0: text, 1 + token] sample that follows; -1: none
    std::vector<std::int32_t> questions;  ///< [tokens] index in the step's samples; -1: not asked
  };

  [[nodiscard]] bool due(const draft::DraftSlot& slot) const;
  void record(draft::DraftSlot& slot, double now);
  [[nodiscard]] bool find_samples(const engine::Step& step);

  std::unique_ptr<draft::Drafter> head_;
  StopRecorderOptions options_;
  TelemetrySink& telemetry_;
  std::map<RequestId, Progress> requests_;
  std::optional<Pending> pending_;
  engine::Step step_;  ///< the last step with questions
};

}  // namespace paceline::speculation
