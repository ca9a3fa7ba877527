// Coordinator, verifier groups and drafter ranks in the simulated world, with an engine that has KV
// but no model. A run hands in its responses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/chaos/misbehaving_mailbox.hpp"
#include "runtime/chaos/random_scheduler.hpp"
#include "runtime/draft/ngram_drafter.hpp"
#include "runtime/policy/schedule/balancing_scheduler.hpp"
#include "runtime/roles/coordinator.hpp"
#include "runtime/roles/drafter_rank.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/spare.hpp"
#include "runtime/roles/verifier.hpp"
#include "runtime/sim/blocks.hpp"
#include "runtime/sim/post.hpp"
#include "tests/runtime/engine/block_checking_runner.hpp"
#include "tests/runtime/quiet_telemetry.hpp"
#include "tests/runtime/requests.hpp"
#include "tests/runtime/roles/oracle_drafter.hpp"

namespace paceline::roles::test {

constexpr double kFlushSeconds = 0.7;
constexpr double kLongestTurn = 0.3;  // seconds

struct StopEvents final : QuietTelemetry {
  void event(const RequestEvent& event) override {
    stopped += event.kind == RequestEventKind::stopped ? 1 : 0;
  }
  std::size_t stopped = 0;
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

/// Drafter ranks of a run.
struct DrafterRanks {
  int ranks = 0;
  int window = 4;
  const Responses* truth = nullptr;
  double accuracy = 0.8;
  chaos::Misbehaviour misbehaviour = chaos::Misbehaviour::none;
  bool features = false;  ///< they read what the target computes
  bool outcomes = false;  ///< they draft for outcomes, at random
  [[nodiscard]] protocol::DraftWindow draft_window() const {
    return {window, outcomes ? 2 * window : 0};
  }
};

/// How requests move in a run, and roles change.
struct Moves {
  bool shuffle = false;
  bool rebalance = false;
  policy::MoveCosts costs;
  std::int32_t growth = 0;
  std::int32_t kv_blocks = 70;    ///< of each group; 9: one request at its longest
  std::vector<int> degrees = {};  ///< of groups, in place of groups of one rank
  bool shuffle_roles = false;
  bool best_of_n = false;      ///< groups that run dry race
  bool shuffle_races = false;  ///< groups race by chance
  std::int32_t chunk = 0;      ///< tokens of a lease
  bool pregenerates = false;   ///< groups without work begin the next step's responses
};

/// The surroundings that all ranks of a run share.
struct Surroundings {
  Surroundings(std::uint64_t number, const policy::Placement& placement, const Moves& how,
               const DrafterRanks& ahead)
      : seed(number),
        network({}, std::vector<int>(placement.ranks)),
        post(world, network, {.seed = seed, .delayed = 0.3, .delay = 0.2, .duplicated = 0.1}),
        blocks(world, network, {.copies = true, .failing = 0.125, .seed = seed}),
        moves(how),
        drafters(ahead),
        limits({.max_batch = 6,
                .prefill_chunk = 20,
                .kv_block = 16,
                .kv_blocks = how.kv_blocks,
                .context = 500,
                .growth = how.growth,
                .picture_merge = 2,
                .picture_rows = 6}) {
    sampling.max_tokens = 50;
  }
  std::uint64_t seed;
  sim::World world;
  sim::Network network;
  sim::Post post;
  sim::BlockWire blocks;
  Moves moves;
  DrafterRanks drafters;
  SamplingParams sampling;
  engine::BatcherLimits limits;
  std::vector<std::string> warnings;  ///< of what drafter ranks did
  OracleDrafter::Holders holders;     ///< of the requests that drafter ranks drafted for
};

/// The KV of a rank in a group, its way to others', and the engine.
struct Engine {
  static constexpr int kHeads = 4;  ///< of all ranks of a group
  Engine(Surroundings& around, BlockTransport& transport, int index, int tp)
      : shape{1, kHeads / tp, 1, around.limits.kv_block, DType::f32},
        bytes(shape.block_bytes() * around.limits.kv_blocks),
        memory{shape, bytes, nullptr},
        runner(memory, kVocab),
        share(transport, memory, index, tp) {}
  kernels::KvShape shape;
  std::vector<std::byte> bytes;
  engine::KvMemory memory;
  engine::BlockCheckingRunner runner;
  KvShare share;
};

/// A verifier with all that it uses. `speculates`: by n-grams of its own.
struct VerifierRank {
  VerifierRank(Surroundings& around, Mailbox& mailbox, const Clock& time, Engine& engine,
               TrajectorySink& sink, TrajectorySink& pregenerated, TelemetrySink& telemetry,
               const policy::Placement& placement, int rank, bool speculates)
      : clock(time),
        batcher(around.limits, around.sampling, {kStop}, nullptr),
        group(mailbox, engine.runner, engine.share, members_of(placement, rank), placement.epoch),
        remote(rank),
        speculator(make_speculator(around, mailbox, placement, speculates)),
        verifier({mailbox, clock, batcher, group, speculator.get(),
                  remote.size() > 0 ? &remote : nullptr, nullptr, nullptr, nullptr, sink, telemetry,
                  nullptr, [&pregenerated](const PregeneratedRun&) { return &pregenerated; }},
                 {.ranks = placement.groups[placement.group(rank)],
                  .epoch = placement.epoch,
                  .max_batch = around.limits.max_batch,
                  .kv_block = around.limits.kv_block,
                  .lease_notice = static_cast<std::uint32_t>(around.moves.chunk / 2),
                  .flush_seconds = kFlushSeconds,
                  .costs = around.moves.costs,
                  .vocab = kVocab,
                  .races = around.moves.best_of_n}) {}
  static std::vector<int> members_of(const policy::Placement& placement, int leader) {
    std::vector<int> members(placement.groups[placement.group(leader)].tp - 1);
    std::iota(members.begin(), members.end(), leader + 1);
    return members;
  }
  std::unique_ptr<speculation::Speculator> make_speculator(Surroundings& around, Mailbox& mailbox,
                                                           const policy::Placement& placement,
                                                           bool speculates) {
    speculation::DrafterRoster roster;
    if (around.drafters.ranks > 0) {
      auto made = std::make_unique<speculation::RemoteDrafter>(
          mailbox, clock, policy::drafters_of(0, {}, placement.drafters),
          speculation::RemoteOptions{
              .vocab = kVocab,
              .window = around.drafters.draft_window(),
              .patience = 2,
              .feature_bytes = around.drafters.features ? group.feature_bytes() : 0},
          [&around](const std::string& text) { around.warnings.push_back(text); });
      remote.add(*made, {});
      roster.push_back({.drafter = std::move(made)});
    }
    if (speculates)
      roster.push_back(
          {.drafter = std::make_unique<draft::NgramDrafter>(draft::NgramOptions{.min_n = 1})});
    if (roster.empty()) return nullptr;
    const int length = around.drafters.ranks == 0 ? 3 : around.drafters.window;
    return std::make_unique<speculation::Speculator>(
        std::move(roster), std::make_unique<policy::FixedLength>(length),
        draft::DraftLimits{.max_tokens = length, .max_length = length}, clock);
  }
  const Clock& clock;
  engine::Batcher batcher;
  Group group;
  speculation::RemoteDrafters remote;
  std::unique_ptr<speculation::Speculator> speculator;
  Verifier verifier;
};

/// A rank in one role after another.
class Rank final : public sim::Actor {
 public:
  Rank(Surroundings& around, int rank, const policy::Placement& placement)
      : actor(around.world.add(*this, 0)),
        sink(around.world.clock(actor)),
        pregenerated(around.world.clock(actor)),
        around_(around),
        rank_(rank),
        mailbox_(around.post.open({rank})),
        misbehaving_(mailbox_, around.drafters.misbehaviour, around.seed,
                     [this](double seconds) { around_.world.work(actor, seconds); }),
        random_(static_cast<unsigned>(around.seed) * 100 + rank) {
    around.post.belongs({rank}, actor);
    become(placement);
  }

  /// A turn of its role, or the step to its next role. Either takes a while, at times a long one.
  protocol::Turn turn() override {
    EXPECT_LT(sink.unflushed_for(), kFlushSeconds + kLongestTurn);
    protocol::Turn turn{true};
    if (role_->over()) {
      end();
    } else {
      turn = role_->turn();
    }
    const double unit = engine_ ? 0.01 : 0.002;  // a draft takes less than a step
    if (turn.worked)
      around_.world.work(actor, random_() % 32 == 0 ? kLongestTurn : unit * (random_() % 10));
    return turn;
  }
  [[nodiscard]] bool over() const override { return reported_; }
  /// Number of `stopped` events.
  [[nodiscard]] std::size_t stopped() const { return telemetry_.stopped; }

  const sim::ActorId actor;
  MemorySink sink;
  MemorySink pregenerated;                    ///< texts for the next step
  std::uint64_t pregenerated_tokens = 0;      ///< RankSummary::pregenerated, of each time
  std::vector<RankSummary> drafted;           ///< of each time that it drafted
  DraftTally tally;                           ///< of all of them
  std::uint64_t raced = 0;                    ///< as a verifier, tokens committed for others
  std::uint64_t foretold = 0;                 ///< likewise, tokens that others said first
  speculation::RemoteDrafter::Counts remote;  ///< likewise, the last time
  std::uint64_t foreseen = 0;                 ///< RemoteDrafter::Counts, of each time

 private:
  void become(const policy::Placement& placement) {
    placement_ = placement;
    verifier_.reset();
    other_.reset();
    engine_.reset();
    const Clock& clock = around_.world.clock(actor);
    const Role role = placement.role(rank_);
    if (role == Role::verifier || role == Role::verifier_member) {
      const auto [leader, tp] = placement.groups[placement.group(rank_)];
      engine_ =
          std::make_unique<Engine>(around_, around_.blocks.open(rank_, actor), rank_ - leader, tp);
      if (role == Role::verifier) {
        verifier_ =
            std::make_unique<VerifierRank>(around_, mailbox_, clock, *engine_, sink, pregenerated,
                                           telemetry_, placement, rank_, rank_ % 2 == 1);
      } else {
        other_ = std::make_unique<Member>(mailbox_, engine_->runner, engine_->share, leader,
                                          placement.epoch);
      }
    } else if (role == Role::drafter) {
      const bool outcomes = around_.drafters.outcomes;
      std::vector<std::unique_ptr<draft::Drafter>> made;
      made.push_back(std::make_unique<OracleDrafter>(*around_.drafters.truth,
                                                     around_.drafters.accuracy,
                                                     around_.drafters.features, &around_.holders));
      other_ =
          std::make_unique<DrafterRank>(misbehaving_, clock, std::move(made), telemetry_,
                                        DrafterOptions{.place = *placement.drafter(rank_),
                                                       .window = around_.drafters.draft_window(),
                                                       .max_batch = outcomes ? 20 : 5,
                                                       .shuffle = outcomes ? around_.seed + 1 : 0,
                                                       .features = DType::f32});
    } else {
      other_ = std::make_unique<Spare>(mailbox_, rank_);
    }
    role_ = verifier_ ? &verifier_->verifier : other_.get();
  }
  void end() {
    const std::optional<policy::Placement> next = role_->next();
    if (verifier_) {
      verifier_->group.finish(next);
      const RankSummary summary = verifier_->verifier.summary();
      raced += summary.raced;
      pregenerated_tokens += summary.pregenerated;
      foretold += summary.foretold;
      verifier_->remote.close();
      remote = verifier_->remote.counts();
      foreseen += remote.foreseen;
    }
    if (const auto* drafter = dynamic_cast<const DrafterRank*>(role_)) {
      drafted.push_back(drafter->summary());
      tally.tried += drafter->tallies()[0].tried;
      tally.accepted += drafter->tallies()[0].accepted;
    }
    if (next) {
      become(*next);
      mailbox_.send(Address::coordinator(), protocol::encode(protocol::Ready{placement_.epoch}));
      return;
    }
    reported_ = true;
    protocol::Summary summary;
    summary.rank.rank = static_cast<std::uint32_t>(rank_);
    mailbox_.send(Address::coordinator(), protocol::encode(summary));
  }

  Surroundings& around_;
  int rank_;
  Mailbox& mailbox_;
  chaos::MisbehavingMailbox misbehaving_;  ///< of a drafter
  std::mt19937 random_;
  StopEvents telemetry_;
  policy::Placement placement_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<VerifierRank> verifier_;
  std::unique_ptr<protocol::Participant> other_;
  protocol::Participant* role_ = nullptr;
  bool reported_ = false;
};

/// The coordinator, which sends messages as soon as it is made.
struct CoordinatorActor final : sim::Actor {
  protocol::Turn turn() override { return coordinator->turn(); }
  [[nodiscard]] bool over() const override { return coordinator->over(); }
  std::unique_ptr<Coordinator> coordinator;
};

struct Outcome {
  std::map<RequestId, Trajectory> finished;
  std::vector<Trajectory> partial;
  bool complete = false;
  Progress progress;
  std::uint64_t raced = 0;     ///< tokens committed by racers
  std::uint64_t foretold = 0;  ///< tokens that racers said first
  std::uint64_t sent = 0;      ///< transfers of KV, by all
  std::vector<RankSummary> drafters;
  std::size_t holders = 0;                    ///< of all requests, as drafter ranks know them
  DraftTally tally;                           ///< of all drafter ranks
  speculation::RemoteDrafter::Counts remote;  ///< of the first rank
  std::uint64_t foreseen = 0;                 ///< by all verifiers
  std::vector<std::string> warnings;
  std::size_t files_read = 0;             ///< of pictures
  std::vector<Trajectory> pregenerated;   ///< texts for the next step
  std::uint64_t pregenerated_tokens = 0;  ///< as the verifiers count them
};

/// The file of a picture is its prompt and number.
struct Files final : PictureSource {
  std::vector<std::byte> file(std::uint32_t prompt, std::size_t picture) override {
    ++read;
    return {static_cast<std::byte>(prompt), static_cast<std::byte>(picture)};
  }
  std::size_t read = 0;
};

/// Shows a picture of so many patches in a prompt, in the place of tokens from `first` on.
inline void show(Prompt& prompt, PictureGrid grid, std::int32_t first) {
  prompt.pictures.push_back({{prompt.tokens.size(), prompt.pictures.size()}, grid, first});
  std::fill_n(prompt.tokens.begin() + first, grid.patches() / 4, kVocab);
}

inline std::vector<Prompt> make_prompts() {
  std::vector<Prompt> prompts(7);
  for (int p = 0; p < 7; ++p) {
    prompts[p].uid = "u" + std::to_string(p);
    for (int i = 0; i < 3 + 11 * p; ++i) prompts[p].tokens.push_back((p * 5 + i) % 40);
    // Some have of their own what others have of the run.
    if (p == 2) prompts[p].sampling.max_tokens = 13;
    if (p == 4) prompts[p].sampling = {.max_tokens = 80, .stops = StopSet{{11}, {}}};
    if (p == 5)
      prompts[p].sampling.draw = TokenDraw{.temperature = 0.25F, .repetition_penalty = 1.5F};
    if (p == 6) prompts[p].sampling.seed = 99;
    if (p == 3) {
      show(prompts[p], {4, 6}, 5);
      show(prompts[p], {2, 4}, 20);
    }
    if (p == 6) show(prompts[p], {8, 8}, 10);
  }
  return prompts;
}

/// The next step: the prompts of this one without pictures, under the same noise.
struct NextStep final : UpcomingRequests {
  explicit NextStep(const std::vector<Prompt>& of) : prompts(of) {}
  std::vector<Admission> take(std::size_t most) override {
    std::vector<Admission> taken;
    if (asked++ == 0) return taken;  // it has yet to be read
    for (; taken.size() < most && next < 4 * prompts.size(); ++next) {
      const auto p = static_cast<std::uint32_t>(next / 4);
      const auto sample = static_cast<std::uint32_t>(next % 4);
      const Prompt& prompt = prompts[p];
      if (!prompt.pictures.empty()) continue;
      Admission request;
      request.trajectory.id = {p, sample};
      request.noise = noise_key(prompt.sampling.seed.value_or(5), 0, prompt.uid, sample);
      request.sampling = prompt.sampling;
      if (taken.empty() || taken.back().trajectory.id.prompt != p) request.prompt = prompt.tokens;
      taken.push_back(std::move(request));
    }
    return taken;
  }
  [[nodiscard]] const PregeneratedRun& run() const override { return place; }
  const std::vector<Prompt>& prompts;
  PregeneratedRun place;
  std::size_t asked = 0;
  std::size_t next = 0;
};

/// `stop_at_turn`: of the world; -1: never.
inline Outcome simulate(int groups, unsigned seed, std::vector<Trajectory> work,
                        std::size_t done_before, int stop_at_turn = -1, const Moves& moves = {},
                        const DrafterRanks& drafters = {}) {
  const std::vector<Prompt> prompts = make_prompts();
  policy::Placement placement;
  for (int g = 0; g < groups; ++g) {
    const int tp = moves.degrees.empty() ? 1 : moves.degrees.at(g);
    placement.groups.push_back({placement.ranks, tp});
    placement.ranks += tp;
  }
  for (int d = 0; d < drafters.ranks; ++d) placement.drafters.push_back({placement.ranks++, 0});
  Surroundings around(seed, placement, moves, drafters);
  std::size_t brought = 0;  // tokens of resumed responses
  for (const Trajectory& t : work) brought += t.tokens.size();

  Mailbox& mailbox = around.post.open(Address::coordinator());
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < placement.ranks; ++rank)
    ranks.push_back(std::make_unique<Rank>(around, rank, placement));
  const policy::LeaseTerms terms{.chunk = moves.chunk,
                                 .growth = moves.growth,
                                 .max_tokens = around.sampling.max_tokens,
                                 .context = around.limits.context};
  chaos::RandomScheduler scheduler(
      std::make_unique<policy::BalancingScheduler>(policy::BalancingOptions{
          .terms = terms, .rebalance = moves.rebalance, .racing = {moves.best_of_n ? 2 : 0, 4}}),
      placement,
      {.moves = moves.shuffle,
       .roles = moves.shuffle_roles,
       .race_methods = moves.shuffle_races ? 2 : 0,
       .seed = seed});
  std::unique_ptr<policy::RequestOrder> order = std::make_unique<policy::FirstCome>();
  if (moves.chunk > 0) order = std::make_unique<policy::QueueAgain>();
  Files files;
  NextStep upcoming(prompts);
  CoordinatorActor actor;
  const sim::ActorId id = around.world.add(actor, 0);
  around.post.belongs(Address::coordinator(), id);
  actor.coordinator = std::make_unique<Coordinator>(
      mailbox, scheduler, placement, std::move(work), std::move(order), prompts,
      CoordinatorOptions{.seed = 5,
                         .terms = terms,
                         .pictures = &files,
                         .upcoming = moves.pregenerates ? &upcoming : nullptr},
      done_before);
  Coordinator& coordinator = *actor.coordinator;
  for (int turn = 0; !coordinator.over(); ++turn) {
    if (turn == stop_at_turn) {
      coordinator.stop();
      around.world.wake(id, 0);
    }
    const bool goes_on = around.world.step() && turn < 200'000;
    EXPECT_TRUE(goes_on) << "the run does not end";
    if (!goes_on) break;
    std::size_t on_disk = done_before;
    for (const auto& rank : ranks) on_disk += rank->sink.finished.size();
    EXPECT_LE(coordinator.progress().finished, on_disk) << "reported before it was flushed";
  }
  Outcome outcome;
  outcome.complete = coordinator.complete();
  outcome.progress = coordinator.progress();
  outcome.warnings = around.warnings;
  outcome.files_read = files.read;
  outcome.holders = around.holders.size();
  std::size_t stopped = 0;
  std::size_t held = 0;  // every token generated or brought along is in a response handed in
  for (int r = 0; r < placement.ranks; ++r) {
    Rank& rank = *ranks[r];
    outcome.drafters.insert(outcome.drafters.end(), rank.drafted.begin(), rank.drafted.end());
    outcome.tally.tried += rank.tally.tried;
    outcome.tally.accepted += rank.tally.accepted;
    outcome.raced += rank.raced;
    stopped += rank.stopped();
    rank.pregenerated.flush();
    for (auto& [request, t] : rank.pregenerated.finished)
      outcome.pregenerated.push_back(std::move(t));
    std::ranges::move(rank.pregenerated.partial, std::back_inserter(outcome.pregenerated));
    outcome.pregenerated_tokens += rank.pregenerated_tokens;
    outcome.foretold += rank.foretold;
    if (r == 0) outcome.remote = rank.remote;
    outcome.foreseen += rank.foreseen;
    outcome.sent += around.blocks.open(r, 0).traffic().sent;
    EXPECT_TRUE(rank.sink.waiting.empty()) << "something was never flushed";
    for (auto& [request, t] : rank.sink.finished) {
      held += t.tokens.size();
      EXPECT_TRUE(outcome.finished.emplace(request, std::move(t)).second);
    }
    for (Trajectory& t : rank.sink.partial) {
      held += t.tokens.size();
      outcome.partial.push_back(std::move(t));
    }
  }
  EXPECT_EQ(outcome.progress.partial, outcome.partial.size());
  EXPECT_EQ(stopped, outcome.partial.size()) << "each is told of, as stopped";
  EXPECT_EQ(outcome.progress.active, 0U);
  EXPECT_EQ(outcome.progress.unflushed, 0U);
  EXPECT_GE(held, outcome.progress.tokens) << "tokens were lost";
  EXPECT_LE(held, outcome.progress.tokens + brought) << "tokens were written twice";
  return outcome;
}

}  // namespace paceline::roles::test
