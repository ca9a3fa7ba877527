// Algorithm 2 as the speculator carries it out: who is thought of anew when, by which facts, and
// what drafter ranks hear first.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "runtime/speculation/speculator.hpp"

namespace paceline::speculation {
namespace {

constexpr int kLength = 4;
constexpr TokenId kRight = 1, kWrong = 2;
constexpr RequestId kWeak{0, 0};  ///< whose drafts are always wrong; all others are right

class StandingClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return 0; }
};

/// What drafter ranks would be told, by request.
struct Told {
  std::map<RequestId, std::size_t> tokens;
  std::map<RequestId, int> windows;
};

class AheadDrafter final : public draft::Drafter, public draft::AheadRunner {
 public:
  /// `said`: tokens that were committed to each request.
  AheadDrafter(Told& told, const std::map<RequestId, std::size_t>& said)
      : told_(told), said_(said) {}
  void start(const draft::DraftStart& start, double) override { told_.tokens[start.id] = 0; }
  void commit(RequestId id, std::span<const TokenId> tokens, double) override {
    told_.tokens.at(id) += tokens.size();
  }
  void propose(std::span<draft::DraftSlot> batch, double, draft::Levels*) override {
    for (draft::DraftSlot& slot : batch) {
      for (slot.count = 0; slot.count < slot.limits.max_length; ++slot.count)
        slot.output.set(slot.count, slot.id == kWeak ? kWrong : kRight, slot.count - 1, 1);
    }
  }
  void finish(RequestId, double) override {}
  [[nodiscard]] draft::Capabilities capabilities() override { return {.ahead = this}; }
  // Its rank drops the request here: what it has not heard of by then it would count as refuted.
  void set_window(RequestId id, int window) override {
    EXPECT_EQ(told_.tokens.at(id), said_.at(id));
    told_.windows[id] = window;
  }

 private:
  Told& told_;
  const std::map<RequestId, std::size_t>& said_;
};

/// Steps of 10 ms up to so many rows, and then so much more for each that few of them pay. A
/// drafter's token takes half a millisecond up to `together` requests, and a step for four times as
/// many.
CostTable costs(double rows, double together) {
  CostTable table;
  table.decode = CostCurve({{1, 0.01}, {rows, 0.01}, {2 * rows, 0.04}});
  table.prefill = CostCurve({{64, 0.01}});
  const CostCurve draft({{1, 0.0005}, {together, 0.0005}, {4 * together, 0.01}});
  table.drafters = {{"ahead", draft, draft, {}}};
  return table;
}

/// Requests of one group that are decoded step by step, reconfigured every 16 tokens.
class Batch {
 public:
  Batch(int requests, const CostTable& table, double groups_per_drafter = 1) {
    SpeculatorOptions options;
    options.reconfigure = Reconfiguration{
        .every = 16, .costs = table, .window = kLength, .groups_per_drafter = groups_per_drafter};
    DrafterRoster roster;
    roster.push_back(
        {.costs = table.drafters[0], .drafter = std::make_unique<AheadDrafter>(told, said)});
    speculator_ = std::make_unique<Speculator>(
        std::move(roster), std::make_unique<policy::FixedLength>(kLength),
        draft::DraftLimits{.max_tokens = kLength, .max_length = kLength, .paths = 1}, clock_,
        std::move(options));
    for (std::uint32_t sample = 0; sample < static_cast<std::uint32_t>(requests); ++sample) {
      Admission request;
      request.trajectory.id = {0, sample};
      request.prompt = {1};
      speculator_->start(request);
      said[request.trajectory.id] = 0;
    }
  }

  /// A step, with which all but the first `left` requests end. Whom it reconfigured.
  std::vector<PlannedRequest> step(std::size_t left = 100) {
    std::vector<engine::Decoding> decoding;
    for (const auto& [id, tokens] : said)
      decoding.push_back({id, static_cast<std::int32_t>(tokens), 100, 100});
    const std::span<const engine::DraftTree> drafts = speculator_->draft(decoding, 0);
    static const std::vector<TokenId> text(kLength + 1, kRight);
    static const std::vector<std::int32_t> chain{0, 1, 2, 3};
    std::vector<engine::Committed> committed;
    for (std::size_t i = 0; i < decoding.size(); ++i) {
      const RequestId id = decoding[i].id;
      const std::size_t accepted = id == kWeak || drafts.empty() ? 0 : drafts[i].tokens.size();
      committed.push_back({.id = id,
                           .decoding = static_cast<std::int32_t>(i),
                           .tokens = std::span(text).first(accepted + 1),
                           .path = std::span(chain).first(accepted),
                           .finished = i >= left});
      said[id] += accepted + 1;
    }
    speculator_->commit(committed, 0.01);
    for (const engine::Committed& c : committed) {
      if (c.finished) said.erase(c.id);
    }
    const std::span<const PlannedRequest> planned = speculator_->planned();
    return {planned.begin(), planned.end()};
  }
  /// Steps until the weak request is reconfigured.
  PlannedRequest until_planned() {
    for (int steps = 0; steps < 16; ++steps) {
      const std::vector<PlannedRequest> planned = step();
      if (planned.empty()) continue;
      EXPECT_EQ(planned.size(), 1U);
      EXPECT_EQ(planned[0].id, kWeak);
      EXPECT_EQ(planned[0].tokens, said.at(kWeak));
      return planned[0];
    }
    ADD_FAILURE() << "nothing was reconfigured";
    return {};
  }

  Told told;
  std::map<RequestId, std::size_t> said;

 private:
  StandingClock clock_;
  std::unique_ptr<Speculator> speculator_;
};

TEST(SpeculatorPlans, DraftersHearOfAllThatWasSaidBeforeTheyAreTakenARequest) {
  Batch batch(4, costs(4, 8));  // AheadDrafter looks
  const PlannedRequest plan = batch.until_planned();
  EXPECT_EQ(plan.mode, SpeculationMode::plain);
  EXPECT_EQ(plan.longest_draft, 0U);
  EXPECT_EQ(plan.tokens, 16U);
  EXPECT_EQ(batch.told.windows, (std::map<RequestId, int>{{kWeak, 0}}));
}

// Four requests fill the rows that cost nothing, two do not: then the weak one is worth drafts.
TEST(SpeculatorPlans, APlanEndsWithTheBatchThatItWasMadeFor) {
  Batch batch(4, costs(4, 8));
  EXPECT_EQ(batch.until_planned().mode, SpeculationMode::plain);
  EXPECT_TRUE(batch.step(3).empty());
  EXPECT_TRUE(batch.step(2).empty()) << "three of four are no other batch";
  const std::vector<PlannedRequest> planned = batch.step();
  ASSERT_EQ(planned.size(), 1U) << "at " << batch.said.at(kWeak) << " tokens";
  EXPECT_EQ(planned[0].id, kWeak);
  EXPECT_EQ(planned[0].mode, SpeculationMode::decoupled);
  EXPECT_EQ(planned[0].tokens, 19U);
  EXPECT_GT(batch.told.windows.at(kWeak), 0);
  for (int steps = 0; steps < 12; ++steps)
    EXPECT_TRUE(batch.step().empty()) << "this plan is for two";
}

// A drafter rank that four groups share is four times as busy as one of a single group.
TEST(SpeculatorPlans, ADrafterRanksOtherGroupsCount) {
  Batch alone(2, costs(64, 2));
  EXPECT_EQ(alone.until_planned().mode, SpeculationMode::decoupled);
  Batch shared(2, costs(64, 2), 4);
  EXPECT_EQ(shared.until_planned().mode, SpeculationMode::plain);
  Batch half(2, costs(64, 2), 0.5);
  EXPECT_EQ(half.until_planned().mode, SpeculationMode::decoupled);
}

}  // namespace
}  // namespace paceline::speculation
