#include "app/assembly/rank_role.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "app/assembly/compute.hpp"
#include "app/assembly/conversing.hpp"
#include "app/assembly/costs.hpp"
#include "app/assembly/drafters.hpp"
#include "app/assembly/kv_storage.hpp"
#include "app/assembly/plan_text.hpp"
#include "app/assembly/pregeneration.hpp"
#include "app/assembly/rank_life.hpp"
#include "app/assembly/wall_clock.hpp"
#include "app/terminal/signals.hpp"
#include "app/terminal/terminal.hpp"
#include "io/run/shard_writer.hpp"
#include "io/telemetry/telemetry.hpp"
#include "runtime/protocol/participant.hpp"

namespace paceline::app {
namespace {

std::uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

/// Tells the coordinator, one time only, that this rank got a signal to stop, because perhaps no
/// other rank got the signal.
class SignalRelay {
 public:
  SignalRelay(Mailbox& mailbox, int rank) : mailbox_(mailbox), rank_(rank) {}
  /// Always returns true, because the rank works on until the coordinator ends the run.
  bool operator()() {
    if (told_ || !stop_signalled()) return true;
    told_ = true;
    mailbox_.send(Address::coordinator(), protocol::encode(protocol::StopRequest{rank_}));
    return true;
  }

 private:
  Mailbox& mailbox_;
  int rank_;
  bool told_ = false;
};

/// Sends queued messages and drops received ones for at most `seconds`, after the rank's last role.
void rest(Mailbox& mailbox, double seconds) {
  (void)mailbox.wait(seconds);
  while (mailbox.poll()) {
  }
}

/// A rank of an MPI job.
class Rank final : public RankMachine {
 public:
  /// Collective; throws JobEnded. References must outlive this object.
  Rank(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Machine& machine,
       const Plan& plan, const Attempt& attempt, const Clock& clock, fabric::UcxFabric& network)
      : inputs_(inputs),
        machine_(machine),
        plan_(plan),
        attempt_(attempt),
        rank_(mpi.rank()),
        clock_(clock),
        network_(network),
        mailbox_(network.mailbox(Address::Port::role)) {
    const policy::Placement& placement = plan.layout.placement;
    together(mpi, [&] {
      telemetry_ = std::make_unique<io::TelemetryWriter>(
          inputs.config.output.directory, attempt.number, rank_,
          io::TelemetryOrigin{
              .plan = rank_ == 0 ? plan_text(inputs, machine, plan) : "",
              .drafter_names = counted_drafters(inputs, plan),
              .host = machine.ranks[rank_].host,
              .cores = machine.backend.on_device()
                           ? 0U
                           : static_cast<std::uint32_t>(
                                 std::min(machine.threads, machine.ranks[rank_].own_cores())),
              .gpus = machine.backend.on_device() ? 1U : 0U,
              .started = unix_seconds() - clock.now(),
              .clock = &clock});
      become_verifier(placement);
    });
    compute_ = make_compute(mpi, inputs, machine, plan);
    together(mpi, [&] { share_kv(placement); });
  }

  /// Gets the costs that policies read (costs_of_run()). Collective.
  void get_costs(const fabric::MpiEnvironment& mpi, Standing& standing) {
    costs_ = standing.costs({mpi, inputs_, plan_, *compute_, kv_share_.get(), mailbox_, clock_},
                            attempt_.responses);
  }
  /// Moves new rewards from the scorer to the shard. Does so every output.flush_seconds seconds or,
  /// if the coordinator waits for rewards (dynamic sampling), more often.
  void keep_rewards();
  /// After generation, waits for missing rewards and closes the shard. Collective.
  ScoringReport finish_rewards(const fabric::MpiEnvironment& mpi);
  /// Closes the shard after a fault, so that finished responses are on disk.
  void save() { shard_.reset(); }
  void close_telemetry() { telemetry_->close(); }

  const Clock& clock() const override { return clock_; }
  Mailbox& mailbox() override { return mailbox_; }
  TelemetrySink& telemetry() override { return *telemetry_; }
  void take(const policy::Placement& placement) override;
  double loading_seconds() const override { return compute_->weights->loading_seconds(); }
  engine::StepRunner& runner() override { return *compute_->executor; }
  const engine::KvMemory& kv() const override { return kv_; }
  roles::KvShare& kv_share() override { return *kv_share_; }
  const CostTable& costs(int tp) const override { return of_degree(costs_, tp); }
  std::unique_ptr<draft::Drafter> drafter(std::int32_t index) override {
    return std::move(compute_->drafters.at(index));
  }
  Environment* environment() override { return environment_.get(); }
  TrajectorySink& trajectories() override { return sink_ ? *sink_ : *shard_; }
  TrajectorySink* pregenerated(const PregeneratedRun& run) override {
    if (!pregenerated_) {
      pregenerated_ = std::make_unique<PregeneratedShard>(
          run, rank_, clock_, inputs_.config.output.flush_seconds,
          [this](const std::string& text) { warn(text); });
    }
    return pregenerated_.get();
  }
  /// Prints a warning if this rank has not printed the same text before, in any role.
  void warn(const std::string& text) override {
    if (warned_.insert(text).second) say("warning: rank {}: {}", rank_, text);
  }
  void sleep(double seconds) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  /// Closes the environment and the pregenerated shard. `shard_` stays open for late rewards.
  void close() override {
    environment_.reset();
    pregenerated_.reset();
    if (shard_) shard_->flush();
  }
  void account(RankSummary& summary) const override;

 private:
  /// Whether the coordinator keeps or drops prompts by their rewards (dynamic sampling).
  [[nodiscard]] bool rewards_choose_prompts() const {
    return inputs_.config.prompts.enough.has_value();
  }
  void tell(std::vector<Reward> rewards);
  void become_verifier(const policy::Placement& placement);
  void share_kv(const policy::Placement& placement);

  const Inputs& inputs_;
  const Machine& machine_;
  const Plan& plan_;
  Attempt attempt_;
  int rank_;
  const Clock& clock_;
  fabric::UcxFabric& network_;
  Mailbox& mailbox_;
  std::unique_ptr<io::TelemetryWriter> telemetry_;
  std::unique_ptr<io::ShardWriter> shard_;    ///< set when the rank first becomes a verifier
  std::unique_ptr<Scoring> scoring_;          ///< set with shard_, if responses are scored
  std::unique_ptr<TrajectorySink> sink_;      ///< null: responses go to shard_ directly
  std::unique_ptr<Environment> environment_;  ///< set with shard_, if responses are conversations
  std::unique_ptr<PregeneratedShard> pregenerated_;  ///< set at the first call of pregenerated()
  double rewards_kept_ = 0;  ///< clock time of the last move of rewards, in seconds
  std::unique_ptr<Compute> compute_;
  engine::KvMemory kv_;                       ///< empty unless the rank is in a verifier group
  KvStorage kv_storage_;                      ///< empty unless the rank is in a verifier group
  std::unique_ptr<roles::KvShare> kv_share_;  ///< null unless the rank is in a verifier group
  CostsByDegree costs_;
  std::set<std::string> warned_;
};

/// Opens the shard and starts scoring and conversations when the rank first becomes a verifier.
void Rank::become_verifier(const policy::Placement& placement) {
  if (shard_ || placement.role(rank_) != Role::verifier) return;
  shard_ = std::make_unique<io::ShardWriter>(
      inputs_.config.output.directory, attempt_.number, rank_,
      [this](double seconds) {
        telemetry_->write({clock_.now() - seconds, seconds, WriteRecord::Kind::trajectories});
      },
      io::ShardContents{inputs_.config.sampling.keep_masks, inputs_.config.converses(),
                        inputs_.config.sampling.keep_routing, inputs_.config.sampling.logprobs});
  environment_ = make_environment(inputs_, {clock_, [this] { mailbox_.wake(); },
                                            [this](const std::string& text) { warn(text); }});
  if (inputs_.config.reward.method == io::RewardMethod::none) {
    if (rewards_choose_prompts()) {
      sink_ = std::make_unique<TellingSink>(
          *shard_, [this](std::vector<Reward> rewards) { tell(std::move(rewards)); });
    }
    return;
  }
  scoring_ = std::make_unique<Scoring>(inputs_, clock_, telemetry_.get());
  sink_ = std::make_unique<ScoringSink>(*shard_, *scoring_);
  read_unscored(attempt_.unscored,
                [this](const Trajectory& response) { scoring_->submit(response); });
  attempt_.unscored = {};
}

void Rank::keep_rewards() {
  constexpr double kAwaited = 0.1;  // seconds between writes if the coordinator waits for rewards
  const double now = clock_.now();
  const double flush = inputs_.config.output.flush_seconds;
  if (!scoring_ ||
      now - rewards_kept_ < (rewards_choose_prompts() ? std::min(kAwaited, flush) : flush))
    return;
  rewards_kept_ = now;
  std::vector<Reward> all;
  if (scoring_->settle([this](const auto& r, const auto& extra) { shard_->reward(r, extra); },
                       &all) > 0)
    shard_->flush();
  if (rewards_choose_prompts() && !all.empty()) tell(std::move(all));
}

/// Sends rewards that are on disk already to the coordinator, and NaN for responses without one.
void Rank::tell(std::vector<Reward> rewards) {
  mailbox_.send(Address::coordinator(), protocol::encode(protocol::Rewarded{std::move(rewards)}));
}

ScoringReport Rank::finish_rewards(const fabric::MpiEnvironment& mpi) {
  ScoringReport report;
  if (inputs_.config.reward.method != io::RewardMethod::none) {
    finish_scoring(
        mpi, scoring_.get(), [this](const auto& r, const auto& extra) { shard_->reward(r, extra); },
        attempt_.stop, [this](double seconds) { rest(mailbox_, seconds); });
  }
  if (scoring_) report = scoring_->report();
  scoring_.reset();
  if (shard_) shard_->close();
  return report;
}

void Rank::share_kv(const policy::Placement& placement) {
  if (!compute_->executor) return;
  const policy::GroupRanks ranks = placement.groups[placement.group(rank_)];
  kv_ = compute_->executor->kv_memory();
  kv_storage_ = make_kv_storage(
      inputs_.config.kv_pool,
      {plan_.memory.kv_pool.memory, machine_.ranks[rank_].local_ranks,
       machine_.backend.on_device()},
      kv_.shape, {[this] { mailbox_.wake(); }, [this](const std::string& text) { warn(text); }});
  kv_share_ = std::make_unique<roles::KvShare>(
      network_.blocks(), kv_, rank_ - ranks.leader, ranks.tp,
      roles::Recorder{&clock_, telemetry_.get()}, kv_storage_.store.get(),
      inputs_.owners(ranks.tp) > 1 ? OptionalIndex(ranks.leader) : OptionalIndex());
}

void Rank::take(const policy::Placement& placement) {
  kv_share_.reset();  // first, because it has registered the memory of kv_ for transfers
  kv_storage_ = {};   // drops KV that the previous role stored, which is computed again if needed
  kv_ = {};
  take_place(*compute_, inputs_, plan_, placement, rank_);
  share_kv(placement);
  become_verifier(placement);
}

void Rank::account(RankSummary& summary) const {
  summary.loading_seconds = loading_seconds();
  summary.flush_seconds = telemetry_->write_seconds();
  const Mailbox::Traffic messages = mailbox_.traffic();
  summary.messages_sent = messages.messages;
  summary.bytes_sent = messages.bytes;
  summary.message_stalls = messages.stalls;
  summary.most_queued = messages.most_queued;
  const BlockTransport::Traffic blocks = network_.blocks().traffic();
  summary.transfers_sent = blocks.sent;
  summary.transfers_received = blocks.received;
  summary.transfers_failed = blocks.failed;
  summary.transfer_bytes_sent = blocks.bytes_sent;
  summary.transfer_bytes_received = blocks.bytes_received;
  const std::uint64_t peak = peak_rss_bytes();
  summary.peak_rss_bytes = peak - std::min(peak, compute_->weights->bytes_of_others());
  const DrafterMemory drafts = draft_model_memory(inputs_, plan_, static_cast<Role>(summary.role));
  const DrafterMemory head = head_memory(inputs_, plan_, static_cast<Role>(summary.role));
  summary.weight_bytes = compute_->weights->bytes();
  summary.kv_bytes = drafts.kv + head.kv;
  if (compute_->executor) summary.kv_bytes += compute_->executor->kv_bytes();
  if (machine_.backend.on_device()) {
    summary.weight_bytes = drafts.weights + head.weights;
    if (compute_->executor) summary.weight_bytes += compute_->executor->weight_bytes();
  }
}

}  // namespace

RankReport run_role(const fabric::MpiEnvironment& mpi, const Inputs& inputs, const Machine& machine,
                    const Plan& plan, const Attempt& attempt, Standing& standing,
                    const Clock& clock, fabric::UcxFabric& network, FaultDesk& faults) {
  Rank rank(mpi, inputs, machine, plan, attempt, clock, network);
  RankLife life(inputs, plan, mpi.rank(), rank);
  RankReport report;
  try {
    rank.get_costs(mpi, standing);
    SignalRelay relay(rank.mailbox(), mpi.rank());
    protocol::drive(life, rank.mailbox(), clock, [&] {
      rank.keep_rewards();
      return relay();
    });
    report.scoring = rank.finish_rewards(mpi);
    rank.close_telemetry();
  } catch (...) {
    faults.report(current_fault(), [&] { rank.save(); });
  }
  report.drafts = {life.drafts().begin(), life.drafts().end()};
  return report;
}

}  // namespace paceline::app
