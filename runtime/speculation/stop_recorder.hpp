// Records in a rollout the points that RADAR's policy is trained on (RADAR, section 2.2,
// "Dataset").
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
  std::int32_t every = 0;  ///< least response tokens between two points of a request
  std::int32_t most = 0;   ///< most tokens of a tree that a point describes
  bool foreknows = false;  ///< trees are made under the noise that the target samples with
};

/// Most tokens of a recorded draft. The draft has the tokens of the whole tree that have children.
inline constexpr std::int32_t kMostRecordedRows = (StopPoint::kCalls - 1) * StopPoint::kStates;

/// The recorder drafts in place of a head. Now and then, at most once a step, it has the head grow
/// the whole tree of a request, and drafts the tree's tokens that have children. Nothing else is
/// drafted. The step that verifies this draft is also asked for the probability of each child. From
/// these probabilities the accepted length is computed, for each tree at which drafting might stop.
/// The samples that verify drafts are unchanged, so a run that records generates the same responses
/// as any other.
///
/// Where a tree is made under the target's own noise, the target's logits alone decide which tokens
/// are accepted. Acceptance is certain then: each probability in the point is 0 or 1.
///
/// A point is recorded only where the response may have kCalls more tokens and no token is
/// foretold. Points of a request that are more than kCalls tokens apart have no noise in common.
/// Not thread-safe.
class StopRecorder final : public draft::Drafter {
 public:
  /// `telemetry` outlives this.
  StopRecorder(std::unique_ptr<draft::Drafter> head, const StopRecorderOptions& options,
               TelemetrySink& telemetry);

  /// Most samples that a step is asked for in addition to its own.
  [[nodiscard]] static std::int32_t most_questions(const StopRecorderOptions& options) {
    return options.foreknows ? 0 : StopPoint::kCalls * options.most;
  }
  /// Returns the step that is to verify the last draft, with the questions after its own samples.
  /// Valid until the next call. `step` stays unchanged.
  [[nodiscard]] const engine::Step& with_questions(const engine::Step& step);
  /// Records the pending point, if any. `sampled`: the step's samples, then the questions' answers.
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
    std::int64_t due = 0;     ///< response tokens from which on the next point may be recorded
  };
  /// A point that is being made: the whole tree, in the order of its growth.
  struct Pending {
    NoiseKey noise;
    StopPoint point;
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::optional<policy::StoppedTrees> trees;
    std::vector<std::int32_t> samples;    ///< [1 + tokens] index in the step's samples; -1: none
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
