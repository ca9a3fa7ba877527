// What RADAR's policy is trained on, out of a rollout (RADAR, section 2.2, "Dataset").
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/core/interfaces.hpp"
#include "runtime/draft/drafter.hpp"
#include "runtime/engine/step.hpp"
#include "runtime/policy/length/stop_lengths.hpp"

namespace paceline::roles {

struct StopRecorderOptions {
  std::int32_t every = 0;  ///< response tokens of a request from one point to the next, at least
  std::int32_t most = 0;   ///< tokens of the trees that points tell of
  bool foreknows = false;  ///< trees are made under the noise that the target samples with
};

/// Most tokens of a recorded draft that are verified: those that others follow.
inline constexpr std::int32_t kMostRecordedRows = (StopPoint::kCalls - 1) * StopPoint::kStates;

/// Stands before a head. Now and then it has it grow the whole tree of a request, at most one a
/// step, and drafts of it what is taken further; nothing else is drafted. The step that verifies
/// this is asked for the probabilities of what may follow, too: that tells what is accepted of any
/// of the trees that drafting might have stopped at. The tokens that drafts are verified by stay as
/// they are, so a run that records is a run like any other.
///
/// Where a tree is made under the target's own noise, that leaves nothing to chance but what the
/// target thinks: then what is accepted is certain, and a point says so.
///
/// A point is recorded where the response may go on for as many tokens as there are calls, and
/// nothing is foretold. The windows of points that are more than kCalls apart have no noise in
/// common. Not thread-safe.
class StopRecorder final : public draft::Drafter {
 public:
  /// `telemetry` outlives this.
  StopRecorder(std::unique_ptr<draft::Drafter> head, const StopRecorderOptions& options,
               TelemetrySink& telemetry);

  /// The samples that a step may be asked for besides.
  [[nodiscard]] static std::int32_t most_questions(const StopRecorderOptions& options) {
    return options.foreknows ? 0 : StopPoint::kCalls * options.most;
  }
  /// The step that is to verify what was drafted last, with the questions behind its own samples.
  /// Valid until the next call; `step` stays as it is.
  [[nodiscard]] const engine::Step& with_questions(const engine::Step& step);
  /// Records the point, where there is one: what the step gave for the samples that it was asked.
  void answered(std::span<const kernels::Sampled> sampled);

  void start(const draft::DraftStart& request, double now) override;
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override;
  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override;
  void finish(RequestId id, double now) override;
  void leave(RequestId id, double now) override;

  [[nodiscard]] std::size_t feature_bytes() const override { return head_->feature_bytes(); }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) override {
    head_->observe(id, first, features);
  }
  [[nodiscard]] bool lags() const override { return head_->lags(); }
  [[nodiscard]] int lag(RequestId id) const override { return head_->lag(id); }
  [[nodiscard]] bool present() const override { return head_->present(); }
  [[nodiscard]] bool gives_memory() const override { return head_->gives_memory(); }
  void suspend() override { head_->suspend(); }
  [[nodiscard]] bool resume() override { return head_->resume(); }
  [[nodiscard]] std::size_t bytes() const override { return head_->bytes(); }

 private:
  struct Progress {
    NoiseKey noise;
    std::int64_t tokens = 0;  ///< of the response
    std::int64_t due = 0;     ///< tokens at which the next point is
  };
  /// A point that is being made: the whole tree, in the order of its growth.
  struct Pending {
    NoiseKey noise;
    StopPoint point;
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> parents;
    std::optional<policy::StoppedTrees> trees;
    std::vector<std::int32_t> samples;    ///< [1 + tokens] of the step: what follows; -1: no row
    std::vector<std::int32_t> questions;  ///< [tokens] of the step; -1: not asked
  };

  [[nodiscard]] bool due(const draft::DraftSlot& slot) const;
  void record(draft::DraftSlot& slot, double now);
  [[nodiscard]] bool find_samples(const engine::Step& step);

  std::unique_ptr<draft::Drafter> head_;
  StopRecorderOptions options_;
  TelemetrySink& telemetry_;
  std::map<RequestId, Progress> requests_;
  std::optional<Pending> pending_;
  engine::Step step_;  ///< the one asked, where there is something to ask
};

}  // namespace paceline::roles
