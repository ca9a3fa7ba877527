// Coordinator and verifiers in a simulated world: mailboxes in memory with delayed delivery, a
// clock that steps, and a runner without a model. Any interleaving must generate every response
// once, and the same responses.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/roles/coordinator.hpp"
#include "runtime/roles/verifier.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/roles/simulated_kv_link.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles {
namespace {

using test::KvWire;
using test::Post;
using test::SimulatedKvLink;
using test::SimulatedMailbox;

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

struct Rank {
  Rank(Post& post, KvWire& wire, const Clock& clock, int rank, const engine::BatcherLimits& limits,
       const SamplingParams& sampling, bool speculates, const policy::MoveCosts& costs)
      : mailbox(post, {rank, Address::Port::role}),
        batcher(limits, sampling, {7}, nullptr),
        runner(limits.kv_blocks, limits.kv_block, 40),
        link(wire, runner),
        sink(clock),
        speculator(speculates ? make_speculator(clock) : nullptr),
        verifier({mailbox, clock, batcher, runner, link, speculator.get(), sink, telemetry},
                 {.ranks = {rank, 1},
                  .max_batch = limits.max_batch,
                  .kv_block = limits.kv_block,
                  .flush_seconds = kFlushSeconds,
                  .costs = costs}) {}
  static std::unique_ptr<Speculator> make_speculator(const Clock& clock) {
    std::vector<std::unique_ptr<draft::Drafter>> drafters;
    drafters.push_back(std::make_unique<draft::NgramDrafter>(draft::NgramOptions{.min_n = 1}));
    return std::make_unique<Speculator>(
        std::move(drafters), std::make_unique<policy::FixedLength>(3),
        draft::DraftLimits{.max_tokens = 3, .max_length = 3}, clock);
  }
  SimulatedMailbox mailbox;
  engine::Batcher batcher;
  engine::BlockCheckingRunner runner;
  SimulatedKvLink link;
  MemorySink sink;
  NoTelemetry telemetry;
  std::unique_ptr<Speculator> speculator;
  Verifier verifier;
};

struct Outcome {
  std::map<RequestId, Trajectory> finished;
  std::vector<Trajectory> partial;
  bool complete = false;
  std::size_t moves = 0;
  int transfers = 0;
};

/// How requests move in a run.
struct Moves {
  bool shuffle = false;
  bool rebalance = false;
  policy::MoveCosts costs;
  std::int32_t chunk = 0;
};

std::vector<Prompt> make_prompts() {
  std::vector<Prompt> prompts(7);
  for (int p = 0; p < 7; ++p) {
    prompts[p].uid = "u" + std::to_string(p);
    for (int i = 0; i < 3 + 11 * p; ++i) prompts[p].tokens.push_back((p * 5 + i) % 40);
  }
  return prompts;
}

Outcome simulate(int groups, unsigned order_seed, std::vector<Trajectory> work,
                 std::size_t done_before, int stop_at_turn = -1, const Moves& moves = {}) {
  const std::vector<Prompt> prompts = make_prompts();
  SamplingParams sampling;
  sampling.max_tokens = 50;
  const engine::BatcherLimits limits{.max_batch = 6,
                                     .prefill_chunk = 20,
                                     .kv_block = 16,
                                     .kv_blocks = 70,
                                     .context = 500,
                                     .chunk = moves.chunk};
  policy::Layout layout;
  layout.groups = groups;
  layout.role.assign(groups, Role::verifier);
  for (int g = 0; g < groups; ++g) layout.group.push_back(g);

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
    ranks.push_back(
        std::make_unique<Rank>(post, wire, clock, g, limits, sampling, g % 2 == 1, moves.costs));

  std::mt19937 random(order_seed);
  std::vector<bool> reported(groups, false);
  for (int turn = 0; !coordinator.over(); ++turn) {
    EXPECT_LT(turn, 200'000) << "the run does not end";
    if (turn >= 200'000) break;
    clock.time += 0.01;
    if (turn == stop_at_turn) coordinator.stop();
    const auto who = static_cast<int>(random() % (groups + 1));
    std::size_t on_disk = done_before;
    for (const auto& rank : ranks) {
      on_disk += rank->sink.finished.size();
      // A rank gets a turn about every (groups + 1) ticks of the clock, at times much later.
      EXPECT_LT(rank->sink.unflushed_for(), kFlushSeconds + 0.01 * 20 * (groups + 1));
    }
    EXPECT_LE(coordinator.progress().finished, on_disk) << "reported before it was flushed";
    if (who == groups) {
      coordinator.turn();
    } else if (!ranks[who]->verifier.over()) {
      ranks[who]->verifier.turn();
    } else if (!reported[who]) {
      reported[who] = true;
      Summary summary;
      summary.rank.rank = static_cast<std::uint32_t>(who);
      ranks[who]->mailbox.send(Address::coordinator(), encode(summary));
    }
  }
  Outcome outcome;
  outcome.complete = coordinator.complete();
  outcome.moves = coordinator.progress().moves;
  outcome.transfers = wire.transfers;
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

std::vector<Trajectory> all_work() {
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

void expect_same(const std::map<RequestId, Trajectory>& a,
                 const std::map<RequestId, Trajectory>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [id, t] : a) {
    EXPECT_EQ(t.tokens, b.at(id).tokens);
    EXPECT_EQ(t.logprob, b.at(id).logprob);
    EXPECT_EQ(t.finish_reason, b.at(id).finish_reason);
  }
}

TEST(Roles, AnyNumberOfGroupsInAnyOrderGeneratesTheSame) {
  const Outcome reference = simulate(1, 1, all_work(), 0);
  EXPECT_TRUE(reference.complete);
  EXPECT_EQ(reference.finished.size(), 28U);
  for (const int groups : {1, 2, 3, 5}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      const Outcome outcome = simulate(groups, seed, all_work(), 0);
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
    }
  }
}

/// All KV, none of it, or about half, and by chance or because a group has run dry.
std::vector<Moves> all_moves() {
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

TEST(Roles, RequestsThatMoveGenerateTheSame) {
  const Outcome reference = simulate(1, 1, all_work(), 0);
  for (const Moves& moves : all_moves()) {
    std::size_t made = 0;
    int transfers = 0;
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Outcome outcome =
          simulate(2 + static_cast<int>(seed % 3), seed, all_work(), 0, -1, moves);
      EXPECT_TRUE(outcome.complete);
      expect_same(reference.finished, outcome.finished);
      made += outcome.moves;
      transfers += outcome.transfers;
    }
    EXPECT_GT(made, moves.shuffle ? 200U : 10U);
    const bool recomputes = moves.costs.transfer > moves.costs.compute;
    EXPECT_EQ(transfers == 0, recomputes) << transfers;
  }
}

TEST(Roles, StoppedAnywhereAndResumedItIsTheSame) {
  const Outcome reference = simulate(1, 1, all_work(), 0);
  std::vector<std::pair<int, Moves>> cases;
  for (const int stop : {0, 3, 50, 200, 400}) {
    cases.emplace_back(stop, Moves{});
    for (const Moves& moves : all_moves()) cases.emplace_back(stop, moves);
  }
  for (const auto& [stop, moves] : cases) {
    Outcome first = simulate(3, 9, all_work(), 0, stop, moves);
    std::map<RequestId, Trajectory> partial;
    for (Trajectory& t : first.partial) {
      const RequestId id = t.id;
      EXPECT_TRUE(partial.emplace(id, std::move(t)).second);
    }
    std::vector<Trajectory> rest;
    for (const Trajectory& t : all_work()) {
      if (first.finished.count(t.id) != 0) continue;
      const auto it = partial.find(t.id);
      rest.push_back(it != partial.end() ? it->second : t);
    }
    if (rest.empty()) {
      EXPECT_TRUE(first.complete);
      continue;
    }
    EXPECT_FALSE(first.complete);
    Outcome second = simulate(2, 4, rest, first.finished.size());
    EXPECT_TRUE(second.complete);
    second.finished.merge(first.finished);
    expect_same(reference.finished, second.finished);
  }
}

TEST(Roles, NothingToDoEndsAtOnce) {
  const Outcome outcome = simulate(2, 1, {}, 28);
  EXPECT_TRUE(outcome.complete);
  EXPECT_TRUE(outcome.finished.empty());
}

TEST(Messages, RoundTripAndRefusal) {
  Lease lease;
  lease.trajectory = {{3, 4}, {1, 2}, {-1.0F, -2.0F}, {-0.5F, -1.5F}, FinishReason::partial, 0, 9};
  lease.prompt = {10, 11, 12};
  lease.noise = {123, 456};
  const Message decoded = decode(encode(lease));
  const auto& got = std::get<Lease>(decoded);
  EXPECT_EQ(got.trajectory.id, lease.trajectory.id);
  EXPECT_EQ(got.trajectory.logprob, lease.trajectory.logprob);
  EXPECT_EQ(got.trajectory.weight_version, 9U);
  EXPECT_EQ(got.prompt, lease.prompt);
  EXPECT_EQ(got.noise, lease.noise);
  const std::vector<std::byte> bytes(1, std::byte{99});
  EXPECT_THROW((void)decode(bytes), std::logic_error);
}

}  // namespace
}  // namespace paceline::roles
