// Coordinator, verifiers and drafter ranks in a simulated world: mailboxes in memory with delayed
// delivery, a clock that steps, and a runner without a model. A run of it hands in its responses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/draft/features.hpp"
#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/policy/schedule/balancing_scheduler.hpp"
#include "runtime/policy/schedule/random_scheduler.hpp"
#include "runtime/roles/coordinator.hpp"
#include "runtime/roles/drafter_rank.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/misbehaving_mailbox.hpp"
#include "runtime/roles/spare.hpp"
#include "runtime/roles/verifier.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/requests.hpp"
#include "tests/runtime/roles/simulated_kv_link.hpp"
#include "tests/runtime/roles/simulated_mailbox.hpp"

namespace paceline::roles::test {

class SteppedClock final : public Clock {
 public:
  [[nodiscard]] double now() const override { return time; }
  double time = 0;
};

constexpr double kFlushSeconds = 0.7;

/// Keeps what was planned for requests and what became of drafters' memory, and nothing else.
struct PlansAlone final : TelemetrySink {
  void step(const StepRecord&) override {}
  void acceptance(std::span<const AcceptanceCell>) override {}
  void event(const RequestEvent& event) override {
    if (event.kind == RequestEventKind::planned) plans.push_back(event);
  }
  void transfer(const TransferRecord&) override {}
  void pool(const KvPoolRecord&) override {}
  void draft_memory(const DraftMemoryRecord& change) override { changes.push_back(change); }
  void stop_point(const StopPoint&) override {}
  void role(const RoleRecord&) override {}
  void summary(const RankSummary&) override {}
  void flush() override {}
  std::vector<RequestEvent> plans;
  std::vector<DraftMemoryRecord> changes;
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

/// Says what the target will say, but for errors; it is wrong the same way whenever it is asked.
/// `reads`: what the runner has of the target, as a head does: it drafts where it knows that of the
/// text's last position but one.
class OracleDrafter final : public draft::Drafter {
 public:
  OracleDrafter(const Responses& truth, double accuracy, bool reads = false)
      : truth_(truth), accuracy_(accuracy), reads_(reads) {}
  void start(const draft::DraftStart& start, double) override {
    EXPECT_TRUE(sizes_.emplace(start.id, start.response.size()).second);
    EXPECT_FALSE(start.prompt.empty());
    prompts_[start.id.prompt].assign(start.prompt.begin(), start.prompt.end());
  }
  void commit(RequestId id, std::span<const TokenId> tokens, double) override {
    sizes_.at(id) += tokens.size();
  }
  void finish(RequestId id, double) override {
    EXPECT_EQ(sizes_.erase(id), 1U);
    features_.erase(id);
  }
  [[nodiscard]] std::size_t feature_bytes() const override { return reads_ ? sizeof(TokenId) : 0; }
  void observe(RequestId id, std::int32_t first, std::span<const std::byte> features) override {
    std::vector<TokenId> text = prompts_.at(id.prompt);
    const std::vector<TokenId>& said = truth_.at(id).tokens;
    text.insert(text.end(), said.begin(), said.end());
    for (std::size_t i = 0; i < features.size() / sizeof(TokenId); ++i) {
      TokenId token = 0;
      std::memcpy(&token, features.data() + i * sizeof token, sizeof token);
      EXPECT_EQ(token, text.at(static_cast<std::size_t>(first) + i)) << "another position's";
    }
    features_[id].add(first, features, sizeof(TokenId));
  }
  void propose(std::span<draft::DraftSlot> batch, double, draft::Levels*) override {
    for (draft::DraftSlot& slot : batch) {
      const std::vector<TokenId>& said = truth_.at(slot.id).tokens;
      const std::size_t text = prompts_.at(slot.id.prompt).size() + sizes_.at(slot.id);
      if (reads_ && features_[slot.id].end + 1 < static_cast<std::int64_t>(text)) continue;
      std::size_t at = sizes_.at(slot.id) + slot.assumed.size();
      for (slot.count = 0; slot.count < slot.limits.max_length && at < said.size(); ++at) {
        slot.output.set(slot.count, right(slot.id, at, accuracy_) ? said[at] : (said[at] + 1) % 40,
                        slot.count - 1, 1);
        ++slot.count;
      }
    }
  }
  /// Whether it says the right token there.
  static bool right(RequestId id, std::size_t at, double accuracy) {
    std::mt19937 random(id.prompt * 1000 + id.sample * 100 + at);
    return random() % 1000 < accuracy * 1000;
  }

 private:
  const Responses& truth_;
  double accuracy_;
  bool reads_;
  std::map<std::uint32_t, std::vector<TokenId>> prompts_;
  std::map<RequestId, std::size_t> sizes_;
  std::map<RequestId, draft::Features> features_;
};

/// N-grams, as if they took memory that can be given back.
class GivingDrafter final : public draft::Drafter {
 public:
  void start(const draft::DraftStart& start, double now) override { ngrams_.start(start, now); }
  void commit(RequestId id, std::span<const TokenId> tokens, double now) override {
    ngrams_.commit(id, tokens, now);
  }
  void finish(RequestId id, double now) override { ngrams_.finish(id, now); }
  void propose(std::span<draft::DraftSlot> batch, double now, draft::Levels* levels) override {
    EXPECT_TRUE(present());
    ngrams_.propose(batch, now, levels);
  }
  [[nodiscard]] bool gives_memory() const override { return true; }
  [[nodiscard]] bool present() const override { return parts_ == 0; }
  void suspend() override { parts_ = 4; }
  [[nodiscard]] bool resume() override { return parts_ == 0 || --parts_ == 0; }

 private:
  draft::NgramDrafter ngrams_{{.min_n = 1}};
  int parts_ = 0;  ///< of loading that are to come
};

/// Drafter ranks of a run.
struct DrafterRanks {
  int ranks = 0;
  int window = 4;
  const Responses* truth = nullptr;
  double accuracy = 0.8;
  Misbehaviour misbehaviour = Misbehaviour::none;
  std::uint32_t reconfigure = 0;  ///< tokens of a request; 0: never
  bool features = false;          ///< they read what the target computes
};

/// Steps of 10 ms, 2 ms for a drafter rank's token and 0.3 ms for n-grams: no way is always best.
inline CostTable reconfiguration_costs() {
  CostTable table;
  table.decode = CostCurve({{1, 0.01}, {64, 0.01}});
  table.prefill = CostCurve({{64, 0.01}});
  table.drafters = {{"ahead", CostCurve({{1, 0.002}}), CostCurve({{1, 0.002}}), {}},
                    {"ngram", CostCurve({{1, 0.0003}}), CostCurve({{1, 0.0003}}), {}}};
  return table;
}

/// How requests move in a run, and roles change.
struct Moves {
  bool shuffle = false;
  bool rebalance = false;
  policy::MoveCosts costs;
  std::int32_t growth = 0;
  std::int32_t kv_blocks = 70;  ///< of each group; 9: one request at its longest
  bool shuffle_roles = false;
  std::vector<int> degrees = {};  ///< of groups, in place of groups of one rank
  bool best_of_n = false;         ///< groups that run dry race
  bool shuffle_races = false;     ///< groups race by chance
  std::int32_t chunk = 0;         ///< tokens of a lease
  std::int32_t gain = 0;          ///< blocks that drafters give at random; 0: they never do
};

/// What all ranks of a world share.
struct Surroundings {
  Surroundings(std::uint64_t seed, const Moves& how, const DrafterRanks& ahead)
      : post(seed), wire(seed), moves(how), drafters(ahead) {}
  Post post;
  KvWire wire;
  SteppedClock clock;
  SamplingParams sampling;
  engine::BatcherLimits limits;
  Moves moves;
  DrafterRanks drafters;
  std::vector<std::string> warnings;  ///< of what drafter ranks did
};

/// A verifier with what it is handed. `speculates`: by n-grams of its own.
struct VerifierRank {
  VerifierRank(Surroundings& world, Mailbox& mailbox, TrajectorySink& sink,
               TelemetrySink& telemetry, const policy::Placement& placement, int rank,
               bool speculates)
      : batcher(world.limits, world.sampling, {7}, nullptr),
        runner(world.limits.kv_blocks, world.limits.kv_block, 40),
        link(world.wire, runner),
        remote(rank),
        speculator(make_speculator(world, mailbox, placement, speculates)),
        memory(make_memory(world, telemetry, speculates)),
        verifier({mailbox, world.clock, batcher, runner, link, speculator.get(),
                  remote.size() > 0 ? &remote : nullptr, nullptr, memory.get(), nullptr, sink,
                  telemetry},
                 {.ranks = placement.groups[placement.group(rank)],
                  .epoch = placement.epoch,
                  .max_batch = world.limits.max_batch,
                  .kv_block = world.limits.kv_block,
                  .lease_notice = static_cast<std::uint32_t>(world.moves.chunk / 2),
                  .flush_seconds = kFlushSeconds,
                  .costs = world.moves.costs,
                  .vocab = 40,
                  .races = world.moves.best_of_n}) {}
  std::unique_ptr<ElasticMemory> make_memory(Surroundings& world, TelemetrySink& telemetry,
                                             bool speculates) {
    if (!speculates || world.moves.gain == 0) return nullptr;
    return std::make_unique<ElasticMemory>(
        ElasticMemoryPorts{world.clock, batcher, runner, *speculator, telemetry},
        std::make_unique<policy::RandomDraftMemory>(world.wire.seed()), world.limits.kv_blocks,
        world.moves.gain);
  }
  std::unique_ptr<Speculator> make_speculator(Surroundings& world, Mailbox& mailbox,
                                              const policy::Placement& placement, bool speculates) {
    std::vector<std::unique_ptr<draft::Drafter>> drafters;
    if (world.drafters.ranks > 0) {
      auto made = std::make_unique<RemoteDrafter>(
          mailbox, world.clock, policy::drafters_of(-1, -1, placement.drafters),
          RemoteOptions{.vocab = 40,
                        .window = world.drafters.window,
                        .patience = 2,
                        .feature_bytes = world.drafters.features ? runner.feature_bytes() : 0},
          [&world](const std::string& text) { world.warnings.push_back(text); });
      remote.add(*made, -1);
      drafters.push_back(std::move(made));
    }
    if (speculates) drafters.push_back(std::make_unique<GivingDrafter>());
    if (drafters.empty()) return nullptr;
    const int length = world.drafters.ranks == 0 ? 3 : world.drafters.window;
    SpeculatorOptions options;
    if (world.drafters.reconfigure > 0) {
      Reconfiguration& how = options.reconfigure.emplace();
      how.every = world.drafters.reconfigure;
      how.costs = reconfiguration_costs();
      how.window = world.drafters.window;
      if (remote.size() > 0) how.drafters.push_back(how.costs.drafters[0]);
      if (speculates) how.drafters.push_back(how.costs.drafters[1]);
    }
    return std::make_unique<Speculator>(
        std::move(drafters), std::make_unique<policy::FixedLength>(length),
        draft::DraftLimits{.max_tokens = length, .max_length = length}, world.clock,
        std::move(options));
  }
  engine::Batcher batcher;
  engine::BlockCheckingRunner runner;
  SimulatedKvLink link;
  RemoteDrafters remote;
  std::unique_ptr<Speculator> speculator;
  std::unique_ptr<ElasticMemory> memory;
  Verifier verifier;
};

/// A rank of a group that has nothing to compute: it only follows its leader.
class Follower final : public Participant {
 public:
  Follower(Mailbox& mailbox, int leader, std::uint32_t epoch)
      : mailbox_(mailbox), leader_{leader}, epoch_(epoch) {}
  Turn turn() override {
    const std::optional<Envelope> envelope = over_ ? std::nullopt : mailbox_.poll();
    if (!envelope) return {};
    if (envelope->from != leader_) return {true};
    if (!led_) {
      led_ = leads(*envelope, epoch_);
      return {true};
    }
    Message message = decode(envelope->bytes);
    if (auto* place = std::get_if<Place>(&message)) next_ = place->placement;
    over_ = next_ || std::holds_alternative<Finish>(message);
    EXPECT_TRUE(over_);
    return {true};
  }
  [[nodiscard]] bool over() const override { return over_; }
  [[nodiscard]] std::optional<policy::Placement> next() const override { return next_; }

 private:
  Mailbox& mailbox_;
  Address leader_;
  std::uint32_t epoch_;
  bool led_ = false;
  bool over_ = false;
  std::optional<policy::Placement> next_;
};

/// A rank, and what it is now.
class Rank {
 public:
  Rank(Surroundings& world, int rank, const policy::Placement& placement)
      : sink(world.clock),
        world_(world),
        rank_(rank),
        mailbox_(world.post, {rank, Address::Port::role}),
        misbehaving_(mailbox_, {world.drafters.misbehaviour, world.wire.seed()},
                     [this](double seconds) { asleep_until_ = world_.clock.time + seconds; }) {
    become(placement);
  }

  /// A turn of its role, or what follows at its end.
  void turn() {
    if (reported_ || world_.clock.time < asleep_until_) return;
    if (!role_->over()) {
      role_->turn();
      return;
    }
    note();
    const std::optional<policy::Placement> next = role_->next();
    if (placement_.role(rank_) == Role::verifier) {
      for (int member = 1; member < placement_.groups[placement_.group(rank_)].tp; ++member) {
        mailbox_.send({rank_ + member}, encode(Lead{placement_.epoch}));
        mailbox_.send({rank_ + member}, next ? encode(Place{*next}) : encode(Finish{}));
      }
    }
    if (next) {
      become(*next);
      mailbox_.send(Address::coordinator(), encode(Ready{placement_.epoch}));
      return;
    }
    reported_ = true;
    Summary summary;
    summary.rank.rank = static_cast<std::uint32_t>(rank_);
    mailbox_.send(Address::coordinator(), encode(summary));
  }

  MemorySink sink;
  std::vector<RankSummary> drafted;  ///< of each time that it drafted
  DraftTally tally;                  ///< of all of them
  std::uint64_t steps = 0;           ///< as a verifier
  std::uint64_t raced = 0;           ///< likewise, tokens committed for others
  std::uint64_t foretold = 0;        ///< likewise, tokens that others said first
  RemoteDrafter::Counts remote;      ///< likewise, the last time
  [[nodiscard]] const std::vector<RequestEvent>& plans() const { return telemetry_.plans; }
  [[nodiscard]] const std::vector<DraftMemoryRecord>& changes() const { return telemetry_.changes; }

 private:
  void become(const policy::Placement& placement) {
    placement_ = placement;
    role_ = nullptr;
    verifier_.reset();
    other_.reset();
    switch (placement.role(rank_)) {
      case Role::verifier:
        verifier_ = std::make_unique<VerifierRank>(world_, mailbox_, sink, telemetry_, placement,
                                                   rank_, rank_ % 2 == 1);
        role_ = &verifier_->verifier;
        return;
      case Role::verifier_member:
        other_ = std::make_unique<Follower>(
            mailbox_, placement.groups[placement.group(rank_)].leader, placement.epoch);
        break;
      case Role::drafter: {
        std::vector<std::unique_ptr<draft::Drafter>> made;
        made.push_back(std::make_unique<OracleDrafter>(
            *world_.drafters.truth, world_.drafters.accuracy, world_.drafters.features));
        const auto place = std::find_if(
            placement.drafters.begin(), placement.drafters.end(),
            [&](const policy::DrafterPlace& drafter) { return drafter.rank == rank_; });
        other_ =
            std::make_unique<DrafterRank>(misbehaving_, world_.clock, std::move(made), telemetry_,
                                          DrafterOptions{.place = *place,
                                                         .window = world_.drafters.window,
                                                         .max_batch = 5,
                                                         .features = DType::f32});
        break;
      }
      case Role::spare:
        other_ = std::make_unique<Spare>(mailbox_, rank_);
        break;
    }
    role_ = other_.get();
  }
  void note() {
    if (verifier_) {
      const RankSummary summary = verifier_->verifier.summary();
      steps += summary.steps;
      raced += summary.raced;
      foretold += summary.foretold;
    }
    if (verifier_) {
      verifier_->remote.close();
      remote = verifier_->remote.counts();
    }
    if (const auto* drafter = dynamic_cast<const DrafterRank*>(role_)) {
      drafted.push_back(drafter->summary());
      tally.tried += drafter->tallies()[0].tried;
      tally.accepted += drafter->tallies()[0].accepted;
    }
  }

  Surroundings& world_;
  int rank_;
  SimulatedMailbox mailbox_;
  MisbehavingMailbox misbehaving_;  ///< of a drafter
  double asleep_until_ = 0;
  PlansAlone telemetry_;
  policy::Placement placement_;
  std::unique_ptr<VerifierRank> verifier_;
  std::unique_ptr<Participant> other_;
  Participant* role_ = nullptr;
  bool reported_ = false;
};

struct Outcome {
  std::map<RequestId, Trajectory> finished;
  std::vector<Trajectory> partial;
  bool complete = false;
  std::size_t moves = 0;
  std::size_t races = 0;
  std::uint64_t raced = 0;     ///< tokens committed by racers
  std::uint64_t foretold = 0;  ///< tokens that racers said first
  std::size_t placements = 0;  ///< times that roles changed
  int transfers = 0;
  int restored = 0;  ///< times that KV came out of the own group's store
  std::vector<RankSummary> drafters;
  DraftTally tally;  ///< of all drafter ranks
  std::vector<RequestEvent> plans;
  std::vector<DraftMemoryRecord> changes;
  std::uint64_t steps = 0;       ///< of all verifiers
  RemoteDrafter::Counts remote;  ///< of the first
  std::size_t most_held = 0;     ///< messages in one mailbox at a time
  std::vector<std::string> warnings;
};

inline std::vector<Prompt> make_prompts() {
  std::vector<Prompt> prompts(7);
  for (int p = 0; p < 7; ++p) {
    prompts[p].uid = "u" + std::to_string(p);
    for (int i = 0; i < 3 + 11 * p; ++i) prompts[p].tokens.push_back((p * 5 + i) % 40);
    // Some have of their own what others have of the run.
    if (p == 2) prompts[p].sampling.max_tokens = 13;
    if (p == 4) prompts[p].sampling = {.max_tokens = 80, .stops = StopSet{{11}, {}}};
  }
  return prompts;
}

inline std::unique_ptr<policy::RequestOrder> order_of(const Moves& moves, std::int32_t max_tokens) {
  if (moves.chunk == 0) return std::make_unique<policy::FirstCome>();
  if (moves.chunk % 2 == 0) return std::make_unique<policy::QueueAgain>();
  return std::make_unique<policy::ContextAware>(max_tokens, 3);
}

inline Outcome simulate(int groups, unsigned order_seed, std::vector<Trajectory> work,
                        std::size_t done_before, int stop_at_turn = -1, const Moves& moves = {},
                        const DrafterRanks& drafters = {}) {
  const std::vector<Prompt> prompts = make_prompts();
  Surroundings world(order_seed, moves, drafters);
  world.sampling.max_tokens = 50;
  world.limits = {.max_batch = 6,
                  .prefill_chunk = 20,
                  .kv_block = 16,
                  .kv_blocks = moves.kv_blocks,
                  .context = 500,
                  .growth = moves.growth};
  policy::Placement placement;
  for (int g = 0; g < groups; ++g) {
    const int tp = moves.degrees.empty() ? 1 : moves.degrees.at(g);
    placement.groups.push_back({placement.ranks, tp});
    placement.ranks += tp;
  }
  for (int d = 0; d < drafters.ranks; ++d) placement.drafters.push_back({placement.ranks++, 0});

  std::size_t brought = 0;  // tokens of resumed responses
  for (const Trajectory& t : work) brought += t.tokens.size();

  SimulatedMailbox mailbox(world.post, Address::coordinator());
  const policy::LeaseTerms terms{.chunk = moves.chunk,
                                 .growth = moves.growth,
                                 .max_tokens = world.sampling.max_tokens,
                                 .context = world.limits.context};
  policy::RandomScheduler scheduler(
      std::make_unique<policy::BalancingScheduler>(policy::BalancingOptions{
          .terms = terms, .rebalance = moves.rebalance, .racing = {moves.best_of_n ? 2 : 0, 4}}),
      placement,
      {.moves = moves.shuffle,
       .roles = moves.shuffle_roles,
       .race_methods = moves.shuffle_races ? 2 : 0,
       .seed = order_seed});
  Coordinator coordinator(mailbox, scheduler, placement, std::move(work),
                          order_of(moves, world.sampling.max_tokens), prompts,
                          {.seed = 5, .terms = terms}, done_before);
  Outcome outcome;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < placement.ranks; ++rank)
    ranks.push_back(std::make_unique<Rank>(world, rank, placement));

  std::mt19937 random(order_seed);
  for (int turn = 0; !coordinator.over(); ++turn) {
    EXPECT_LT(turn, 200'000) << "the run does not end";
    if (turn >= 200'000) break;
    world.clock.time += 0.01;
    if (turn == stop_at_turn) coordinator.stop();
    std::size_t on_disk = done_before;
    for (const auto& rank : ranks) {
      on_disk += rank->sink.finished.size();
      // A rank gets a turn about every so many ticks of the clock, at times much later.
      EXPECT_LT(rank->sink.unflushed_for(), kFlushSeconds + 0.01 * 20 * (placement.ranks + 1));
    }
    EXPECT_LE(coordinator.progress().finished, on_disk) << "reported before it was flushed";
    // The coordinator is the last.
    const auto who = static_cast<int>(random() % (placement.ranks + 1));
    outcome.most_held = std::max(outcome.most_held, world.post.most_held());
    if (who == placement.ranks) {
      coordinator.turn();
    } else {
      ranks[who]->turn();
    }
  }
  outcome.complete = coordinator.complete();
  outcome.moves = coordinator.progress().moves;
  outcome.races = coordinator.progress().races;
  outcome.placements = coordinator.progress().placements;
  outcome.transfers = world.wire.transfers;
  outcome.restored = world.wire.restored;
  outcome.warnings = world.warnings;
  std::size_t handed_in = 0;
  for (const auto& rank : ranks) handed_in += rank->sink.partial.size();
  EXPECT_EQ(coordinator.progress().partial, handed_in);
  EXPECT_EQ(coordinator.progress().active, 0U);
  EXPECT_EQ(coordinator.progress().unflushed, 0U);
  std::size_t held = 0;  // every token generated or brought along is in a response handed in
  for (const auto& rank : ranks) {
    outcome.drafters.insert(outcome.drafters.end(), rank->drafted.begin(), rank->drafted.end());
    outcome.tally.tried += rank->tally.tried;
    outcome.tally.accepted += rank->tally.accepted;
    outcome.plans.insert(outcome.plans.end(), rank->plans().begin(), rank->plans().end());
    outcome.changes.insert(outcome.changes.end(), rank->changes().begin(), rank->changes().end());
    outcome.steps += rank->steps;
    outcome.raced += rank->raced;
    outcome.foretold += rank->foretold;
    if (rank == ranks[0]) outcome.remote = rank->remote;
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

/// All KV, none of it, or about half, and by chance or because a group has run dry.
inline std::vector<Moves> all_moves() {
  std::vector<Moves> all;
  for (const std::int32_t growth : {0, 7}) {
    for (const policy::MoveCosts& costs : {policy::MoveCosts{}, policy::costs_by_position(1, 1000),
                                           policy::costs_by_position(1, 1)}) {
      all.push_back({.shuffle = true, .costs = costs, .growth = growth});
      all.push_back({.rebalance = true, .costs = costs, .growth = growth});
    }
  }
  return all;
}

}  // namespace paceline::roles::test
