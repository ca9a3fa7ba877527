// Coordinator, verifiers and drafter ranks in a simulated world: mailboxes in memory with delayed
// delivery, a clock that steps, and a runner without a model. A run of it hands in its responses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/roles/coordinator.hpp"
#include "runtime/roles/drafter_rank.hpp"
#include "runtime/roles/verifier.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/roles/simulated_kv_link.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles::test {

class SteppedClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return time; }
  double time = 0;
};

constexpr double kFlushSeconds = 0.7;

struct NoTelemetry final : TelemetrySink {
  void step(const StepRecord&) override {}
  void acceptance(std::span<const AcceptanceCell>) override {}
  void event(const RequestEvent&) override {}
  void flush() override {}
};

struct MemorySink final : TrajectorySink {
  explicit MemorySink(const Clock& clock) : clock_(clock) {}
  void append(const Trajectory& t) override {
    if (waiting.empty()) oldest = clock_.now();
    waiting.push_back(t);
  }
  [[nodiscard]] double unflushed_for() const { return waiting.empty() ? 0 : clock_.now() - oldest; }
  void flush() override {
    for (Trajectory& t : waiting) {
      if (t.finish_reason == FinishReason::partial) {
        partial.push_back(std::move(t));
      } else {
        const RequestId id = t.id;
        EXPECT_TRUE(finished.emplace(id, std::move(t)).second);
      }
    }
    waiting.clear();
  }
  const Clock& clock_;
  double oldest = 0;
  std::vector<Trajectory> waiting, partial;
  std::map<RequestId, Trajectory> finished;
};

using Responses = std::map<RequestId, Trajectory>;

/// Says what the target will say, but for errors; it is wrong the same way whenever it is asked.
class OracleDrafter final : public draft::Drafter {
 public:
  OracleDrafter(const Responses& truth, double accuracy) : truth_(truth), accuracy_(accuracy) {}
  void start(const draft::DraftStart& start, double) override {
    EXPECT_TRUE(sizes_.emplace(start.id, start.response.size()).second);
    EXPECT_FALSE(start.prompt.empty());
  }
  void commit(RequestId id, std::span<const TokenId> tokens, double) override {
    sizes_.at(id) += tokens.size();
  }
  void finish(RequestId id, double) override { EXPECT_EQ(sizes_.erase(id), 1U); }
  void propose(std::span<draft::DraftSlot> batch, double, draft::Levels*) override {
    for (draft::DraftSlot& slot : batch) {
      const std::vector<TokenId>& said = truth_.at(slot.id).tokens;
      std::size_t at = sizes_.at(slot.id) + slot.assumed.size();
      for (slot.count = 0; slot.count < slot.limits.max_length && at < said.size(); ++at) {
        std::mt19937 random(slot.id.prompt * 1000 + slot.id.sample * 100 + at);
        const bool right = random() % 1000 < accuracy_ * 1000;
        slot.output.set(slot.count, right ? said[at] : (said[at] + 1) % 40, slot.count - 1, 1);
        ++slot.count;
      }
    }
  }

 private:
  const Responses& truth_;
  double accuracy_;
  std::map<RequestId, std::size_t> sizes_;
};

/// Drafter ranks of a run.
struct DrafterRanks {
  int ranks = 0;
  int window = 4;
  const Responses* truth = nullptr;
  double accuracy = 0.8;
};

struct Rank {
  /// `speculates`: by n-grams of its own. `drafters`: ranks that draft for it.
  Rank(Post& post, KvWire& wire, const Clock& clock, int rank, const engine::BatcherLimits& limits,
       const SamplingParams& sampling, bool speculates, const std::vector<int>& drafters,
       int window, const policy::MoveCosts& costs)
      : mailbox(post, {rank, Address::Port::role}),
        batcher(limits, sampling, {7}, nullptr),
        runner(limits.kv_blocks, limits.kv_block, 40),
        link(wire, runner),
        sink(clock),
        speculator(make_speculator(clock, speculates, drafters, window)),
        verifier({mailbox, clock, batcher, runner, link, speculator.get(), remote, sink, telemetry},
                 {.ranks = {rank, 1},
                  .max_batch = limits.max_batch,
                  .kv_block = limits.kv_block,
                  .flush_seconds = kFlushSeconds,
                  .costs = costs}) {}
  std::unique_ptr<Speculator> make_speculator(const Clock& clock, bool speculates,
                                              const std::vector<int>& ranks, int window) {
    std::vector<std::unique_ptr<draft::Drafter>> drafters;
    if (!ranks.empty()) {
      auto made = std::make_unique<RemoteDrafter>(mailbox, ranks, 40);
      remote = made.get();
      drafters.push_back(std::move(made));
    }
    if (speculates)
      drafters.push_back(std::make_unique<draft::NgramDrafter>(draft::NgramOptions{.min_n = 1}));
    if (drafters.empty()) return nullptr;
    const int length = ranks.empty() ? 3 : window;
    return std::make_unique<Speculator>(
        std::move(drafters), std::make_unique<policy::FixedLength>(length),
        draft::DraftLimits{.max_tokens = length, .max_length = length}, clock);
  }
  SimulatedMailbox mailbox;
  engine::Batcher batcher;
  engine::BlockCheckingRunner runner;
  SimulatedKvLink link;
  MemorySink sink;
  NoTelemetry telemetry;
  RemoteDrafter* remote = nullptr;
  std::unique_ptr<Speculator> speculator;
  Verifier verifier;
};

struct Outcome {
  std::map<RequestId, Trajectory> finished;
  std::vector<Trajectory> partial;
  bool complete = false;
  std::size_t moves = 0;
  int transfers = 0;
  std::vector<RankSummary> drafters;
  std::uint64_t steps = 0;  ///< of all verifiers
};

/// How requests move in a run.
struct Moves {
  bool shuffle = false;
  bool rebalance = false;
  policy::MoveCosts costs;
  std::int32_t chunk = 0;
  std::int32_t kv_blocks = 70;  ///< of each group; 9: one request at its longest
};

inline std::vector<Prompt> make_prompts() {
  std::vector<Prompt> prompts(7);
  for (int p = 0; p < 7; ++p) {
    prompts[p].uid = "u" + std::to_string(p);
    for (int i = 0; i < 3 + 11 * p; ++i) prompts[p].tokens.push_back((p * 5 + i) % 40);
  }
  return prompts;
}

inline Outcome simulate(int groups, unsigned order_seed, std::vector<Trajectory> work,
                        std::size_t done_before, int stop_at_turn = -1, const Moves& moves = {},
                        const DrafterRanks& drafters = {}) {
  const std::vector<Prompt> prompts = make_prompts();
  SamplingParams sampling;
  sampling.max_tokens = 50;
  const engine::BatcherLimits limits{.max_batch = 6,
                                     .prefill_chunk = 20,
                                     .kv_block = 16,
                                     .kv_blocks = moves.kv_blocks,
                                     .context = 500,
                                     .chunk = moves.chunk};
  policy::Layout layout;
  layout.groups = groups;
  layout.role.assign(groups, Role::verifier);
  for (int g = 0; g < groups; ++g) layout.group.push_back(g);
  std::vector<int> drafter_ranks;
  for (int d = 0; d < drafters.ranks; ++d) {
    drafter_ranks.push_back(groups + d);
    layout.role.push_back(Role::drafter);
    layout.group.push_back(-1);
  }

  std::size_t brought = 0;  // tokens of resumed responses
  for (const Trajectory& t : work) brought += t.tokens.size();

  Post post;
  KvWire wire(order_seed);
  SteppedClock clock;
  SimulatedMailbox mailbox(post, Address::coordinator());
  Coordinator coordinator(mailbox, layout, std::move(work), prompts,
                          {.seed = 5, .rebalance = moves.rebalance, .shuffle = moves.shuffle},
                          done_before);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int g = 0; g < groups; ++g)
    ranks.push_back(std::make_unique<Rank>(post, wire, clock, g, limits, sampling, g % 2 == 1,
                                           drafter_ranks, drafters.window, moves.costs));
  std::vector<std::unique_ptr<SimulatedMailbox>> drafter_mailboxes;
  std::vector<std::unique_ptr<DrafterRank>> drafter_roles;
  NoTelemetry telemetry;
  for (const int rank : drafter_ranks) {
    drafter_mailboxes.push_back(
        std::make_unique<SimulatedMailbox>(post, Address{rank, Address::Port::role}));
    std::vector<std::unique_ptr<draft::Drafter>> made;
    made.push_back(std::make_unique<OracleDrafter>(*drafters.truth, drafters.accuracy));
    drafter_roles.push_back(
        std::make_unique<DrafterRank>(*drafter_mailboxes.back(), clock, std::move(made), telemetry,
                                      DrafterOptions{.window = drafters.window, .max_batch = 5}));
  }

  std::mt19937 random(order_seed);
  std::vector<bool> reported(layout.role.size(), false);
  for (int turn = 0; !coordinator.over(); ++turn) {
    EXPECT_LT(turn, 200'000) << "the run does not end";
    if (turn >= 200'000) break;
    clock.time += 0.01;
    if (turn == stop_at_turn) coordinator.stop();
    // The coordinator is the last.
    const auto participants = static_cast<int>(layout.role.size()) + 1;
    const auto who = static_cast<int>(random() % participants);
    std::size_t on_disk = done_before;
    for (const auto& rank : ranks) {
      on_disk += rank->sink.finished.size();
      // A rank gets a turn about every so many ticks of the clock, at times much later.
      EXPECT_LT(rank->sink.unflushed_for(), kFlushSeconds + 0.01 * 20 * participants);
    }
    EXPECT_LE(coordinator.progress().finished, on_disk) << "reported before it was flushed";
    Participant* role = nullptr;
    if (who < groups) role = &ranks[who]->verifier;
    if (who >= groups && who < participants - 1) role = drafter_roles[who - groups].get();
    if (role == nullptr) {
      coordinator.turn();
    } else if (!role->over()) {
      role->turn();
    } else if (!reported[who]) {
      reported[who] = true;
      Summary summary;
      summary.rank.rank = static_cast<std::uint32_t>(who);
      post.put(Address::coordinator(), who, encode(summary));
    }
  }
  Outcome outcome;
  outcome.complete = coordinator.complete();
  outcome.moves = coordinator.progress().moves;
  outcome.transfers = wire.transfers;
  for (const auto& drafter : drafter_roles) outcome.drafters.push_back(drafter->summary());
  for (const auto& rank : ranks) outcome.steps += rank->verifier.summary().steps;
  std::size_t handed_in = 0;
  for (const auto& rank : ranks) handed_in += rank->sink.partial.size();
  EXPECT_EQ(coordinator.progress().partial, handed_in);
  EXPECT_EQ(coordinator.progress().active, 0U);
  EXPECT_EQ(coordinator.progress().unflushed, 0U);
  std::size_t held = 0;  // every token generated or brought along is in a response handed in
  for (const auto& rank : ranks) {
    for (const auto& [id, t] : rank->sink.finished) held += t.tokens.size();
    for (const Trajectory& t : rank->sink.partial) held += t.tokens.size();
  }
  EXPECT_GE(held, coordinator.progress().tokens) << "tokens were lost";
  EXPECT_LE(held, coordinator.progress().tokens + brought) << "tokens were written twice";
  for (auto& rank : ranks) {
    EXPECT_TRUE(rank->sink.waiting.empty()) << "something was never flushed";
    for (auto& [id, t] : rank->sink.finished)
      EXPECT_TRUE(outcome.finished.emplace(id, std::move(t)).second);
    for (Trajectory& t : rank->sink.partial) outcome.partial.push_back(std::move(t));
  }
  return outcome;
}

inline std::vector<Trajectory> all_work() {
  std::vector<Trajectory> work;
  for (std::uint32_t p = 0; p < 7; ++p) {
    for (std::uint32_t s = 0; s < 4; ++s) {
      Trajectory t;
      t.id = {p, s};
      work.push_back(t);
    }
  }
  return work;
}

inline void expect_same(const std::map<RequestId, Trajectory>& a,
                        const std::map<RequestId, Trajectory>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [id, t] : a) {
    EXPECT_EQ(t.tokens, b.at(id).tokens);
    EXPECT_EQ(t.logprob, b.at(id).logprob);
    EXPECT_EQ(t.finish_reason, b.at(id).finish_reason);
  }
}

/// All KV, none of it, or about half, and by chance or because a group has run dry.
inline std::vector<Moves> all_moves() {
  std::vector<Moves> all;
  for (const std::int32_t chunk : {0, 7}) {
    for (const policy::MoveCosts costs :
         {policy::MoveCosts{0, 0, 0}, policy::MoveCosts{1, 1000, 0}, policy::MoveCosts{1, 1, 0}}) {
      all.push_back({.shuffle = true, .costs = costs, .chunk = chunk});
      all.push_back({.rebalance = true, .costs = costs, .chunk = chunk});
    }
  }
  return all;
}

}  // namespace paceline::roles::test
