// Costs measured of an engine and drafters whose costs are known, on a clock that they advance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "runtime/costs/cost_measurement.hpp"

namespace paceline {
namespace {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return seconds_; }
  void advance(double seconds) { seconds_ += seconds; }

 private:
  double seconds_ = 0;
};

/// What everything truly costs, and what else the machine does.
struct Truth {
  double decode = 1e-3, row = 1e-4;        ///< a step and each of its rows
  double prefill_row = 5e-5;               ///< of rows that are not sampled
  double position = 1e-7, drafted = 2e-8;  ///< each row's, first and others of a request
  double first = 4e-4, round = 1e-4, draft_row = 1e-5;
  double catch_up = 2e-6;  ///< a token
  double next = 1.5e-4;    ///< as `first`, of a call that goes on from assumed tokens
  double noise = 0;        ///< share by which times vary, upwards
  /// Every second share of so long a time everything takes three times as long.
  double burst = 0;
  /// Attention takes `cold` times as long until so many steps in a row have attended to as many
  /// positions.
  int warming = 0;
  double cold = 3;

  double disturbed(double seconds, double now) {
    seconds *= 1 + noise * static_cast<double>(random() % 1000) / 1000;
    return burst > 0 && static_cast<long>(now / burst) % 4 == 3 ? 3 * seconds : seconds;
  }
  std::mt19937 random{1};
};

class ModelledRunner final : public engine::StepRunner {
 public:
  ModelledRunner(Truth& truth, ManualClock& clock, const engine::ExecutorLimits& limits)
      : truth_(truth), clock_(clock), limits_(limits) {}

  engine::StepResult run(const engine::Step& step) override {
    tables_.apply(step.kv.edits);
    ++steps;
    double seconds = 0;
    if (!step.empty()) {
      check(step);
      const auto sampled = static_cast<double>(step.samples.size());
      const auto rows = static_cast<double>(step.tokens.size());
      seconds = truth_.decode + sampled * truth_.row + (rows - sampled) * truth_.prefill_row;
      double attention = 0;
      int positions = 0;
      for (const engine::StepPart& part : step.parts) {
        attention += part.first_position * (truth_.position + (part.rows - 1) * truth_.drafted);
        positions += part.first_position;
      }
      alike_ = positions == std::exchange(positions_, positions) ? alike_ + 1 : 0;
      seconds += attention * (alike_ < truth_.warming ? truth_.cold : 1);
    }
    clock_.advance(truth_.disturbed(seconds, clock_.now()));
    sampled_.resize(step.samples.size());
    return {.sampled = sampled_};
  }

  int steps = 0;

 private:
  /// What a backend relies on: sizes, blocks that are there, positions that were computed.
  void check(const engine::Step& step) {
    ASSERT_LE(static_cast<int>(step.parts.size()), limits_.max_batch);
    ASSERT_LE(static_cast<int>(step.samples.size()), limits_.max_batch * (1 + limits_.max_draft));
    ASSERT_LE(static_cast<int>(step.tokens.size()),
              limits_.max_batch * (1 + limits_.max_draft) + limits_.prefill_chunk);
    std::set<std::int32_t> written;
    std::int32_t row = 0;
    for (const engine::StepPart& part : step.parts) {
      ASSERT_EQ(part.first_row, row);
      row += part.rows;
      ASSERT_LE(part.first_position + part.rows, limits_.max_position);
      const std::span<const std::int32_t> table = tables_.of(part.sequence);
      for (int p = part.first_position; p < part.first_position + part.rows; ++p) {
        const auto block = static_cast<std::size_t>(p / limits_.kv_block);
        ASSERT_LT(block, table.size());
        ASSERT_LT(table[block], limits_.kv_blocks);
        ASSERT_TRUE(written.insert(table[block] * limits_.kv_block + p % limits_.kv_block).second);
      }
    }
    ASSERT_EQ(row, static_cast<std::int32_t>(step.tokens.size()));
  }

  Truth& truth_;
  ManualClock& clock_;
  engine::ExecutorLimits limits_;
  engine::BlockTables tables_;
  std::vector<kernels::Sampled> sampled_;
  int positions_ = 0;  ///< that the last step attended to
  int alike_ = 0;      ///< steps in a row, before the last, that attended to as many
};

class ModelledDrafter final : public draft::Drafter, public draft::LaggingState {
 public:
  ModelledDrafter(Truth& truth, ManualClock& clock) : truth_(truth), clock_(clock) {}

  void start(const draft::DraftStart& start, double) override {
    ASSERT_TRUE(lag_.emplace(start.id, static_cast<int>(start.response.size())).second);
  }
  void commit(RequestId, std::span<const TokenId>, double) override { FAIL(); }
  [[nodiscard]] int lag(RequestId id) const override { return lag_.at(id); }
  [[nodiscard]] draft::Capabilities capabilities() override {
    return {.state = this, .branches = true};
  }
  void propose(std::span<draft::DraftSlot> batch, double, draft::Levels*) override {
    const bool goes_on = !batch.front().assumed.empty();
    double seconds = (goes_on ? truth_.next : truth_.first) - truth_.round;
    int rounds = 0;
    for (draft::DraftSlot& slot : batch) {
      seconds += truth_.catch_up * std::exchange(lag_.at(slot.id), 0);
      slot.count = slot.limits.max_length;
      rounds = std::max(rounds, slot.count);
      seconds += truth_.draft_row * slot.count;
    }
    clock_.advance(truth_.disturbed(seconds + rounds * truth_.round, clock_.now()));
  }
  void finish(RequestId id, double) override { ASSERT_EQ(lag_.erase(id), 1U); }

  [[nodiscard]] std::size_t requests() const { return lag_.size(); }

 private:
  Truth& truth_;
  ManualClock& clock_;
  std::map<RequestId, int> lag_;
};

struct Machine {
  Truth truth;
  ManualClock clock;
  engine::ExecutorLimits limits{.max_batch = 16,
                                .max_draft = 8,
                                .prefill_chunk = 64,
                                .kv_block = 16,
                                .kv_blocks = 2000,
                                .max_position = 800};
  double waits = 0;  ///< for other ranks before a step, in steps
  int meetings = 0;  ///< with other ranks

  CostMeasurement measure(const MeasurementBudget& budget) {
    ModelledRunner runner(truth, clock, limits);
    ModelledDrafter drafter(truth, clock);
    MeasuredEngine engine{runner, limits, 1000, {{"model", drafter}}, 8};
    engine.meet = [this](std::uint64_t, double step, double) {
      ++meetings;
      clock.advance(waits * step);
    };
    const CostMeasurement m = measure_costs(engine, clock, budget);
    EXPECT_EQ(drafter.requests(), 0U) << "requests are left behind";
    return m;
  }
};

void expect_true(const CostTable& table, const Truth& t, double tolerance) {
  const auto near = [&](double found, double expected) {
    EXPECT_NEAR(found / expected, 1, tolerance);
  };
  for (const double rows : {1.0, 4.0, 11.0, 16.0, 50.0, 144.0})
    near(table.decode.seconds(rows), t.decode + rows * t.row);
  near(table.step_seconds({.requests = 16, .context = 500}),
       t.decode + 16 * (t.row + 500 * t.position));
  near(table.step_seconds({.requests = 8, .drafted = 24, .context = 500}),
       t.decode + 32 * t.row + 500 * (8 * t.position + 24 * t.drafted));
  near(table.prefill.seconds(64), t.decode + t.row + 63 * t.prefill_row);
  near(table.first_seconds(8, 0), t.first + 16 * t.draft_row);  // with a second row each
  near(table.round_seconds(8, 0), t.round + 8 * t.draft_row);
  near(table.catch_up_seconds(256, 0), 256 * t.catch_up);
  near(table.drafters.at(0).next.seconds(8), t.next + 8 * t.draft_row);
}

TEST(CostMeasurement, FindsWhatThingsCost) {
  Machine machine;
  const CostMeasurement m = machine.measure({.seconds = 10});
  expect_true(m.table, machine.truth, 0.02);
  EXPECT_EQ(m.table.drafters.at(0).name, "model");
  EXPECT_GT(m.measurements, 100);
}

// As in a rollout, where each step reads the KV that the step before read.
TEST(CostMeasurement, TimesStepsOnWarmCaches) {
  Machine machine;
  machine.truth.warming = 4;
  const CostTable table = machine.measure({.seconds = 20}).table;
  const Truth& t = machine.truth;
  const double found = table.step_seconds({.requests = 1, .context = 400});
  EXPECT_NEAR(found, t.decode + t.row + 400 * t.position, 400 * t.position * 0.05);
}

TEST(CostMeasurement, IsNotMisledByNoiseAndBursts) {
  Machine machine;
  machine.truth.noise = 0.2;
  machine.truth.burst = 0.05;
  expect_true(machine.measure({.seconds = 5}).table, machine.truth, 0.25);
}

TEST(CostMeasurement, KeepsToItsTime) {
  for (const double seconds : {0.05, 0.5, 2.0}) {
    Machine machine;
    const CostMeasurement m = machine.measure({.seconds = seconds});
    EXPECT_LE(m.seconds, seconds + 0.05);
    EXPECT_DOUBLE_EQ(m.seconds, machine.clock.now());
    EXPECT_FALSE(m.table.decode.empty());
  }
}

// Waiting for other ranks takes time too, above all where there are more ranks than cores.
TEST(CostMeasurement, MeetsOtherRanksOnlyToMeasure) {
  for (const double seconds : {0.0, 0.05, 0.5}) {
    Machine machine;
    machine.waits = 1;
    const CostMeasurement m = machine.measure({.seconds = seconds});
    EXPECT_LE(m.seconds, seconds + 0.05);
    EXPECT_LE(machine.meetings, m.measurements);
  }
}

TEST(CostMeasurement, TakesAShareOfShortWork) {
  Machine machine;
  const double step = machine.truth.decode + 16 * machine.truth.row;
  const CostMeasurement m = machine.measure({.seconds = 2, .share = 0.01, .steps_foreseen = 1e4});
  EXPECT_LE(m.seconds, 0.01 * 1e4 * step + 0.05);
  expect_true(m.table, machine.truth, 0.15);
}

TEST(CostMeasurement, HasATableWhateverTheTime) {
  Machine machine;
  const CostTable table = machine.measure({.seconds = 0}).table;
  const Truth& t = machine.truth;
  EXPECT_NEAR(table.decode.seconds(1), t.decode + t.row, 1e-9);
  EXPECT_NEAR(table.decode.seconds(16), t.decode + 16 * t.row, 1e-9);
  EXPECT_GT(table.step_seconds({.requests = 16, .drafted = 16, .prefill_rows = 64}), 0);
  EXPECT_GT(table.first_seconds(16, 0), 0);
  EXPECT_GT(table.round_seconds(16, 0), 0);
}

TEST(CostMeasurement, FitsIntoSmallPools) {
  for (const int blocks : {2, 7, 60}) {
    Machine machine;
    machine.limits.kv_blocks = blocks;
    machine.limits.max_position = blocks * 16;
    EXPECT_FALSE(machine.measure({.seconds = 1}).table.decode.empty());
  }
}

// Blocks reach past them, and drafts of many paths have more tokens.
TEST(CostMeasurement, FitsIntoShortSequences) {
  for (const int positions : {1, 5, 40, 121}) {
    Machine machine;
    machine.limits.kv_block = 128;
    machine.limits.prefill_chunk = 256;
    machine.limits.max_draft = 64;
    machine.limits.max_position = positions;
    EXPECT_FALSE(machine.measure({.seconds = 1}).table.decode.empty());
  }
}

}  // namespace
}  // namespace paceline
