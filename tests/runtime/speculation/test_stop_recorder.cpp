#include "runtime/speculation/stop_recorder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "runtime/engine/draft_tree.hpp"
#include "tests/runtime/quiet_telemetry.hpp"

namespace paceline::speculation {
namespace {

constexpr int kCalls = StopPoint::kCalls;
constexpr int kStates = StopPoint::kStates;
constexpr int kMost = 59;
constexpr RequestId kRecorded{3, 1};
constexpr RequestId kOther{3, 2};

/// After any text the same tree: the i-th child of a token is `10 * depth + i`, half as likely as
/// the one before it.
class FakeHead final : public draft::Drafter {
 public:
  void start(const draft::DraftStart&, double) override {}
  void commit(RequestId, std::span<const TokenId>, double) override {}
  void finish(RequestId, double) override {}
  void propose(std::span<draft::DraftSlot> batch, double, draft::Levels* levels) override {
    for (draft::DraftSlot& slot : batch) {
      ++asked;
      struct Node {
        TokenId token;
        std::int32_t parent;
        double score;
      };
      std::vector<Node> nodes;
      std::vector<std::int32_t> frontier{-1};
      for (int depth = 1; depth <= std::min(slot.limits.max_length, deepest); ++depth) {
        std::vector<std::int32_t> level;
        for (const std::int32_t parent : frontier) {
          double score = parent < 0 ? 1 : nodes[parent].score;
          for (int i = 0; i < kStates; ++i) {
            score /= 2;
            nodes.push_back({10 * depth + i, parent, score});
            level.push_back(static_cast<std::int32_t>(nodes.size()) - 1);
          }
        }
        std::stable_sort(level.begin(), level.end(),
                         [&](auto a, auto b) { return nodes[a].score > nodes[b].score; });
        level.resize(kStates);
        frontier = level;
        if (levels == nullptr || depth == slot.limits.max_length) continue;
        std::vector<float> seen;
        for (const std::int32_t node : level)
          seen.push_back(static_cast<float>(std::log(nodes[node].score)));
        draft::GrowingDraft growing{slot.id, {}, 40, seen};
        levels->judge(depth, {&growing, 1});
        EXPECT_TRUE(growing.grows);
      }
      slot.count = std::min(static_cast<int>(nodes.size()), slot.limits.max_tokens);
      for (int i = 0; i < slot.count; ++i)
        slot.output.set(i, nodes[i].token, nodes[i].parent, static_cast<float>(nodes[i].score));
    }
  }
  int deepest = kCalls;
  int asked = 0;  ///< for how many drafts
};

struct Points final : QuietTelemetry {
  void stop_point(const StopPoint& point) override { points.push_back(point); }
  std::vector<StopPoint> points;
};

/// A slot and where it writes.
struct Slot {
  explicit Slot(RequestId id, int most = kMostRecordedRows)
      : tokens(most), parents(most), scores(most) {
    slot = {id, {most, kCalls, kStates}, {tokens, parents, scores}};
  }
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;
  draft::DraftSlot slot;
};

class StopRecorderTest : public ::testing::Test {
 protected:
  void use(bool foreknows) {
    auto head = std::make_unique<FakeHead>();
    head_ = head.get();
    recorder_ = std::make_unique<StopRecorder>(
        std::move(head), StopRecorderOptions{1, kMost, foreknows}, telemetry_);
    for (const RequestId id : {kRecorded, kOther})
      recorder_->start({id, prompt_, {}, noise(id)}, 0);
  }
  static NoiseKey noise(RequestId id) { return {id.sample, 9}; }
  void commit(RequestId id, int count) {
    recorder_->commit(id, std::vector<TokenId>(static_cast<std::size_t>(count), 1), 0);
  }
  /// A step that verifies the draft behind a row of the other request.
  engine::Step step_of(const draft::DraftSlot& slot) const {
    engine::TreeRows rows;
    rows.lay_out({slot.output.tokens.first(slot.count), slot.output.parents.first(slot.count)});
    engine::Step step;
    step.tokens.push_back(1);
    step.parts.push_back({0, 1, 17, 0, -1});
    step.samples.push_back({noise(kOther), 0, 3});
    step.parts.push_back({1, rows.size(), 20, 1, 0});
    step.parents.assign(rows.parent().begin(), rows.parent().end());
    for (std::int32_t r = 0; r < rows.size(); ++r) {
      step.tokens.push_back(r == 0 ? 1 : slot.output.tokens[rows.draft()[r]]);
      step.samples.push_back({noise(kRecorded), 1 + r, 40 + rows.depth()[r]});
    }
    return step;
  }
  /// What a target says that goes on with `path`, and holds the i-th token of any level for
  /// 2^-(i + 2) likely.
  static std::vector<kernels::Sampled> run(const engine::Step& step, const engine::Step& asked,
                                           const std::vector<TokenId>& path) {
    std::vector<kernels::Sampled> sampled;
    for (const engine::StepSample& s : asked.samples) {
      if (s.given >= 0) {
        sampled.push_back({s.given, 0, static_cast<float>(-(s.given % 10 + 2) * std::log(2.0))});
        continue;
      }
      const auto depth = static_cast<std::size_t>(s.index - 40);
      const bool known = s.index >= 40 && depth < path.size();
      sampled.push_back({known ? path[depth] : 999, 0, 0});
    }
    EXPECT_GE(asked.samples.size(), step.samples.size());
    return sampled;
  }

  std::vector<TokenId> prompt_{5, 6};
  Points telemetry_;
  FakeHead* head_ = nullptr;
  std::unique_ptr<StopRecorder> recorder_;
};

TEST_F(StopRecorderTest, APointTellsWhatIsAcceptedOfEachTree) {
  use(false);
  commit(kRecorded, 40);
  Slot slot(kRecorded);
  recorder_->propose({&slot.slot, 1}, 0, nullptr);
  ASSERT_GT(slot.slot.count, 0);
  ASSERT_LE(slot.slot.count, kMostRecordedRows);
  for (std::int32_t t = 0; t < slot.slot.count; ++t) ASSERT_LT(slot.parents[t], t);
  const engine::Step step = step_of(slot.slot);
  const engine::Step& asked = recorder_->with_questions(step);
  EXPECT_LE(static_cast<int>(asked.samples.size() - step.samples.size()),
            StopRecorder::most_questions({1, kMost, false}));
  // The likeliest of three levels, and then something that nobody drafted.
  const auto sampled = run(step, asked, {10, 20, 30});
  recorder_->answered(sampled);
  ASSERT_EQ(telemetry_.points.size(), 1U);
  const StopPoint& point = telemetry_.points[0];
  EXPECT_EQ(point.id, kRecorded);
  EXPECT_EQ(point.first, 40U);
  EXPECT_FLOAT_EQ(point.states[0][0], static_cast<float>(std::log(0.5)));
  EXPECT_FLOAT_EQ(point.states[6][0], static_cast<float>(7 * std::log(0.5)));
  EXPECT_EQ(point.accepted, (StopPoint::Accepted{1, 2, 3, 3, 3, 3, 3, 3}));
  // After one call ten tokens stand, of which one is said with probability 1/4 + 1/8 + ...
  EXPECT_NEAR(point.lengths[0][1], 0.5 - std::pow(0.5, 11), 1e-6);
  for (const auto& row : point.lengths)
    EXPECT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), 1, 1e-5);
  // The chain of the likeliest tokens stands in the tree of four calls.
  EXPECT_GT(point.lengths[3][4], std::pow(0.25, 4) - 1e-6);
  recorder_->answered(sampled);
  EXPECT_EQ(telemetry_.points.size(), 1U);
}

TEST_F(StopRecorderTest, UnderTheTargetsNoiseWhatIsAcceptedIsCertain) {
  use(true);
  commit(kRecorded, 40);
  Slot slot(kRecorded);
  recorder_->propose({&slot.slot, 1}, 0, nullptr);
  const engine::Step step = step_of(slot.slot);
  const engine::Step& asked = recorder_->with_questions(step);
  EXPECT_EQ(asked.samples.size(), step.samples.size());
  recorder_->answered(run(step, asked, {10, 21, 30}));
  ASSERT_EQ(telemetry_.points.size(), 1U);
  const StopPoint& point = telemetry_.points[0];
  for (int c = 0; c < kCalls; ++c) {
    for (int n = 0; n <= kCalls; ++n)
      EXPECT_EQ(point.lengths[c][n], n == point.accepted[c] ? 1 : 0);
  }
  EXPECT_EQ(point.accepted[0], 1);
  EXPECT_EQ(point.accepted[2], 3);
}

TEST_F(StopRecorderTest, RecordsOneRequestOfABatchAndDraftsNothingElse) {
  use(false);
  commit(kRecorded, 40);
  Slot other(kOther);
  Slot slot(kRecorded);
  std::vector<draft::DraftSlot> batch{other.slot, slot.slot};
  recorder_->propose(batch, 0, nullptr);
  EXPECT_EQ(batch[0].count, 0);
  EXPECT_GT(batch[1].count, 0);
  EXPECT_EQ(head_->asked, 1);
  // Nothing is due again before the request has gone on.
  recorder_->propose(batch, 0, nullptr);
  EXPECT_EQ(batch[1].count, 0);
  commit(kRecorded, 1);
  recorder_->propose(batch, 0, nullptr);
  EXPECT_GT(batch[1].count, 0);
  EXPECT_EQ(head_->asked, 2);
}

TEST_F(StopRecorderTest, DropsAPointThatTheStepDoesNotVerify) {
  use(false);
  commit(kRecorded, 40);
  Slot slot(kRecorded);
  recorder_->propose({&slot.slot, 1}, 0, nullptr);
  draft::DraftSlot fewer = slot.slot;
  --fewer.count;
  const engine::Step step = step_of(fewer);
  EXPECT_EQ(&recorder_->with_questions(step), &step);
  recorder_->answered(run(step, step, {10}));
  EXPECT_TRUE(telemetry_.points.empty());
}

TEST_F(StopRecorderTest, RecordsNothingOfTreesThatEndEarlyOrHaveNoRoom) {
  use(false);
  commit(kRecorded, 40);
  head_->deepest = 5;
  Slot slot(kRecorded);
  recorder_->propose({&slot.slot, 1}, 0, nullptr);
  EXPECT_EQ(slot.slot.count, 0);
  head_->deepest = kCalls;
  Slot small(kRecorded, kMostRecordedRows - 1);
  recorder_->propose({&small.slot, 1}, 0, nullptr);
  EXPECT_EQ(small.slot.count, 0);
  const std::vector<TokenId> assumed{7};
  Slot ahead(kRecorded);
  ahead.slot.assumed = assumed;
  recorder_->propose({&ahead.slot, 1}, 0, nullptr);
  EXPECT_EQ(ahead.slot.count, 0);
  EXPECT_TRUE(telemetry_.points.empty());
}

}  // namespace
}  // namespace paceline::speculation
