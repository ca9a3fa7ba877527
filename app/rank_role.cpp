#include "app/rank_role.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "app/compute.hpp"
#include "app/costs.hpp"
#include "app/drafters.hpp"
#include "app/rank_life.hpp"
#include "app/report.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"
#include "io/hdf5/shard_writer.hpp"
#include "io/hdf5/telemetry.hpp"
#include "runtime/roles/participant.hpp"

namespace paceline::app {
namespace {

std::uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

/// Passes a signal on to the coordinator, once: it may have reached this rank alone.
class SignalRelay {
 public:
  SignalRelay(Mailbox& mailbox, int rank) : mailbox_(mailbox), rank_(rank) {}
  bool operator()() {
    if (told_ || !stop_signalled()) return true;
    told_ = true;
    mailbox_.send(Address::coordinator(), roles::encode(roles::StopRequest{rank_}));
    return true;
  }

 private:
  Mailbox& mailbox_;
  int rank_;
  bool told_ = false;
};

/// A rank of an MPI job.
class Rank final : public RankMachine {
 public:
  /// Collective; throws JobEnded. References outlive this.
  Rank(const fabric::MpiEnvironment& mpi, const Setup& setup, const Attempt& attempt,
       const Clock& clock, fabric::UcxFabric& network)
      : setup_(setup),
        attempt_(attempt),
        rank_(mpi.rank()),
        clock_(clock),
        network_(network),
        mailbox_(network.mailbox(Address::Port::role)) {
    const policy::Placement& placement = setup.layout.placement;
    together(mpi, [&] {
      telemetry_ = std::make_unique<io::TelemetryWriter>(
          setup.config.output.directory, attempt.number, rank_, rank_ == 0 ? plan_text(setup) : "",
          drafter_names(setup));
      open_shard(placement);
    });
    compute_ = make_compute(mpi, setup);
    together(mpi, [&] { share_kv(placement); });
  }

  /// What steps, drafts and moves cost. Collective.
  void measure(const fabric::MpiEnvironment& mpi) {
    costs_ = costs_of_run({mpi, setup_, *compute_, kv_share_.get(), mailbox_, clock_},
                          attempt_.responses);
  }
  /// Saves what can be saved after a fault.
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
  std::vector<std::unique_ptr<draft::Drafter>> drafters() override {
    return std::move(compute_->drafters);
  }
  TrajectorySink& trajectories() override { return *shard_; }
  void warn(const std::string& text) override { say("warning: rank {}: {}", rank_, text); }
  void sleep(double seconds) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  void close() override {
    if (shard_) shard_->close();
  }
  void account(RankSummary& summary) const override;

 private:
  void open_shard(const policy::Placement& placement);
  void share_kv(const policy::Placement& placement);

  const Setup& setup_;
  Attempt attempt_;
  int rank_;
  const Clock& clock_;
  fabric::UcxFabric& network_;
  Mailbox& mailbox_;
  std::unique_ptr<io::TelemetryWriter> telemetry_;
  std::unique_ptr<io::ShardWriter> shard_;  ///< from its first turn as a verifier on
  std::unique_ptr<Compute> compute_;
  engine::KvMemory kv_;                       ///< of verifiers and members
  std::unique_ptr<roles::KvShare> kv_share_;  ///< likewise
  CostsByDegree costs_;
};

void Rank::open_shard(const policy::Placement& placement) {
  if (shard_ || placement.role(rank_) != Role::verifier) return;
  shard_ =
      std::make_unique<io::ShardWriter>(setup_.config.output.directory, attempt_.number, rank_);
}

void Rank::share_kv(const policy::Placement& placement) {
  if (!compute_->executor) return;
  const policy::GroupRanks ranks = placement.groups[placement.group(rank_)];
  kv_ = compute_->executor->kv_memory();
  kv_share_ =
      std::make_unique<roles::KvShare>(network_.blocks(), kv_, rank_ - ranks.leader, ranks.tp,
                                       roles::Recorder{&clock_, telemetry_.get()});
}

void Rank::take(const policy::Placement& placement) {
  kv_share_.reset();  // before the memory that it has registered
  kv_ = {};
  take_place(*compute_, setup_, placement, rank_);
  share_kv(placement);
  open_shard(placement);
}

void Rank::account(RankSummary& summary) const {
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
  const DrafterMemory drafts = drafter_memory(setup_, static_cast<Role>(summary.role));
  summary.weight_bytes = compute_->weights->bytes();
  summary.kv_bytes = drafts.kv;
  if (compute_->executor) summary.kv_bytes += compute_->executor->kv_bytes();
  if (setup_.backend.on_device()) {
    summary.weight_bytes = drafts.weights;
    if (compute_->executor) summary.weight_bytes += compute_->executor->weight_bytes();
  }
}

}  // namespace

std::vector<DraftTally> run_role(const fabric::MpiEnvironment& mpi, const Setup& setup,
                                 const Attempt& attempt, const Clock& clock,
                                 fabric::UcxFabric& network, FaultDesk& faults) {
  Rank rank(mpi, setup, attempt, clock, network);
  RankLife life(setup, mpi.rank(), rank, roles::test_drafter(std::getenv("PACELINE_TEST_DRAFTER")));
  try {
    rank.measure(mpi);
    roles::drive(life, rank.mailbox(), clock, SignalRelay(rank.mailbox(), mpi.rank()));
    rank.close_telemetry();
  } catch (...) {
    faults.report(current_fault(), [&] { rank.save(); });
  }
  return {life.drafts().begin(), life.drafts().end()};
}

}  // namespace paceline::app
