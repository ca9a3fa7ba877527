#include "app/rank_role.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/compute.hpp"
#include "app/costs.hpp"
#include "app/drafters.hpp"
#include "app/make_speculator.hpp"
#include "app/report.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"
#include "io/hdf5/shard_writer.hpp"
#include "io/hdf5/telemetry.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/roles/drafter_rank.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/misbehaving_mailbox.hpp"
#include "runtime/roles/participant.hpp"
#include "runtime/roles/spare.hpp"
#include "runtime/roles/verifier.hpp"

namespace paceline::app {
namespace {

using policy::GroupRanks;

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

/// What decides how much of a request's KV is sent.
policy::MoveCosts move_costs(io::MoveKvBy by, const policy::MoveCosts& measured) {
  switch (by) {
    case io::MoveKvBy::transfer:
      return {};
    case io::MoveKvBy::recompute:
      return policy::costs_by_position(1, 1e9);
    case io::MoveKvBy::both:
      return policy::costs_by_position(1, 1);
    case io::MoveKvBy::cost:
      break;
  }
  return measured;
}

/// Adds what a role did to what those before it on the rank did. `drafted` and `accepted` are what
/// a verifier had verified or what a drafter rank had drafted for it, so that those of a rank that
/// was both count both; steps tell them apart.
void add(RankSummary& sum, const RankSummary& role) {
  sum.busy_seconds += role.busy_seconds;
  sum.steps += role.steps;
  sum.prefill_tokens += role.prefill_tokens;
  sum.decode_tokens += role.decode_tokens;
  sum.drafted += role.drafted;
  sum.accepted += role.accepted;
  sum.response_tokens += role.response_tokens;
  sum.wasted += role.wasted;
  sum.most_wasted = std::max(sum.most_wasted, role.most_wasted);
  sum.moved += role.moved;
  sum.positions_transferred += role.positions_transferred;
  sum.late += role.late;
  sum.stale += role.stale;
  sum.invalid += role.invalid;
  sum.waited_seconds += role.waited_seconds;
}

/// What a role came to.
struct Ended {
  RankSummary summary;
  std::optional<policy::Placement> next;  ///< in which the rank has another place
};

/// A rank: what it keeps whatever its role, and its roles one after another.
class Rank {
 public:
  /// Collective; throws JobEnded. References outlive this.
  Rank(const fabric::MpiEnvironment& mpi, const Setup& setup, const Attempt& attempt,
       const Clock& clock, fabric::UcxFabric& network)
      : setup_(setup),
        attempt_(attempt),
        rank_(mpi.rank()),
        clock_(clock),
        network_(network),
        mailbox_(network.mailbox(Address::Port::role)),
        placement_(setup.layout.placement),
        drafts_(setup.drafters.size()) {
    together(mpi, [&] {
      telemetry_ = std::make_unique<io::TelemetryWriter>(
          setup.config.output.directory, attempt.number, rank_, rank_ == 0 ? plan_text(setup) : "",
          drafter_names(setup));
      open_shard();
    });
    compute_ = make_compute(mpi, setup);
    together(mpi, [&] { share_kv(); });
  }

  /// What steps, drafts and moves cost. Collective.
  void measure(const fabric::MpiEnvironment& mpi) {
    costs_ = costs_of_run({mpi, setup_, *compute_, kv_share_.get(), mailbox_, clock_},
                          attempt_.responses);
  }
  /// Until the coordinator says that nothing more will come.
  void run();
  /// Saves what can be saved after a fault.
  void save() { shard_.reset(); }
  /// [setup.drafters] What became of its own drafters' tokens.
  [[nodiscard]] std::vector<DraftTally> drafts() const { return drafts_; }

 private:
  Ended run_role();
  Ended run_verifier();
  Ended run_member();
  Ended run_drafter();
  Ended run_spare();
  void take(policy::Placement placement);
  void open_shard();
  void share_kv();
  void record_role(double start);
  void summarize(RankSummary summary, double start);
  void count(Role role, std::span<const DraftTally> tallies);
  [[nodiscard]] GroupRanks group() const { return placement_.groups[placement_.group(rank_)]; }
  /// Led by -1 where the rank is in none.
  [[nodiscard]] GroupRanks group_or_none() const {
    return placement_.group(rank_) >= 0 ? group() : GroupRanks{-1, 0};
  }
  template <typename Role>
  void drive(Role& role, Mailbox& mailbox) {
    roles::drive(role, mailbox, clock_, SignalRelay(mailbox, rank_));
  }

  const Setup& setup_;
  Attempt attempt_;
  int rank_;
  const Clock& clock_;
  fabric::UcxFabric& network_;
  Mailbox& mailbox_;
  policy::Placement placement_;
  std::unique_ptr<io::TelemetryWriter> telemetry_;
  std::unique_ptr<io::ShardWriter> shard_;  ///< from its first turn as a verifier on
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<roles::KvShare> kv_share_;  ///< of verifiers and members
  CostsByDegree costs_;
  std::vector<DraftTally> drafts_;  ///< [setup_.drafters]
};

void Rank::open_shard() {
  if (shard_ || placement_.role(rank_) != Role::verifier) return;
  shard_ =
      std::make_unique<io::ShardWriter>(setup_.config.output.directory, attempt_.number, rank_);
}

void Rank::share_kv() {
  if (!compute_->executor) return;
  const GroupRanks ranks = group();
  kv_share_ = std::make_unique<roles::KvShare>(network_.blocks(), compute_->executor->kv_memory(),
                                               rank_ - ranks.leader, ranks.tp,
                                               roles::Recorder{&clock_, telemetry_.get()});
}

/// Becomes what a placement says. Nothing here waits for another rank.
void Rank::take(policy::Placement placement) {
  const double start = clock_.now();
  placement_ = std::move(placement);
  kv_share_.reset();  // before the memory that it has registered
  take_place(*compute_, setup_, placement_, rank_);
  share_kv();
  open_shard();
  mailbox_.send(Address::coordinator(), roles::encode(roles::Ready{placement_.epoch}));
  record_role(start);
}

void Rank::record_role(double start) {
  const GroupRanks ranks = group_or_none();
  telemetry_->role({.start = start,
                    .preparing = clock_.now() - start,
                    .role = static_cast<std::uint32_t>(placement_.role(rank_)),
                    .epoch = placement_.epoch,
                    .leader = ranks.leader,
                    .tp = static_cast<std::uint32_t>(ranks.tp)});
}

void Rank::run() {
  const double start = clock_.now();
  record_role(start);
  RankSummary summary;
  while (true) {
    Ended ended = run_role();
    add(summary, ended.summary);
    if (!ended.next) break;
    take(std::move(*ended.next));
  }
  if (shard_) shard_->close();
  summarize(summary, start);
  telemetry_->close();
  mailbox_.flush();
}

Ended Rank::run_role() {
  switch (placement_.role(rank_)) {
    case Role::verifier:
      return run_verifier();
    case Role::verifier_member:
      return run_member();
    case Role::drafter:
      return run_drafter();
    case Role::spare:
      break;
  }
  return run_spare();
}

Ended Rank::run_verifier() {
  const io::RunConfig& config = setup_.config;
  const GroupRanks ranks = group();
  engine::Batcher batcher({.max_batch = config.engine.max_batch,
                           .prefill_chunk = config.engine.prefill_chunk,
                           .kv_block = config.engine.kv_block,
                           .kv_blocks = setup_.kv.blocks,
                           .context = setup_.model.max_position,
                           .chunk = config.schedule.chunk.value_or(0)},
                          config.sampling, setup_.stops,
                          setup_.tokenizer ? &*setup_.tokenizer : nullptr);
  std::vector<int> members;
  for (int member = 1; member < ranks.tp; ++member) members.push_back(rank_ + member);
  roles::Group group(mailbox_, *compute_->executor, *kv_share_, members, placement_.epoch);
  std::vector<std::unique_ptr<draft::Drafter>> drafters = std::move(compute_->drafters);
  roles::RemoteDrafter* remote = nullptr;
  if (setup_.layout.drafters() > 0) {
    auto made = std::make_unique<roles::RemoteDrafter>(
        mailbox_, clock_, placement_.drafters,
        roles::RemoteOptions{.vocab = setup_.model.vocab,
                             .window = draft_window(config.speculation)},
        [rank = rank_](const std::string& text) { say("warning: rank {}: {}", rank, text); });
    remote = made.get();
    drafters.insert(drafters.begin(), std::move(made));
  }
  const std::unique_ptr<roles::Speculator> speculator =
      make_speculator(setup_, std::move(drafters), of_degree(costs_, ranks.tp), clock_);
  const kernels::KvShape shape = compute_->executor->kv_memory().shape;
  const policy::MoveCosts costs{of_degree(costs_, ranks.tp),
                                static_cast<double>(shape.block_bytes()) / shape.block};
  roles::Verifier verifier(
      {mailbox_, clock_, batcher, group, group, speculator.get(), remote, *shard_, *telemetry_},
      {.ranks = ranks,
       .epoch = placement_.epoch,
       .max_batch = config.engine.max_batch,
       .kv_block = config.engine.kv_block,
       .flush_seconds = config.output.flush_seconds,
       .costs = move_costs(config.schedule.move_kv, costs)});
  mailbox_.send(Address::coordinator(), roles::encode(roles::Costs{placement_.epoch, costs}));
  drive(verifier, mailbox_);
  group.finish(verifier.next());
  if (remote != nullptr) remote->close();
  if (speculator != nullptr) {
    telemetry_->acceptance(speculator->acceptance());
    // What drafter ranks sent is first, and theirs to count.
    count(Role::verifier, speculator->tallies().subspan(remote != nullptr ? 1 : 0));
  }
  return {verifier.summary(), verifier.next()};
}

/// A group's other ranks: their leader speaks for them, but for a signal that reaches one alone.
Ended Rank::run_member() {
  roles::Member member(mailbox_, *compute_->executor, *kv_share_, group().leader, placement_.epoch,
                       {&clock_, telemetry_.get()});
  const double measuring = compute_->executor->busy_seconds();  // and earlier roles
  drive(member, mailbox_);
  RankSummary summary;
  summary.steps = member.steps();
  summary.busy_seconds = compute_->executor->busy_seconds() - measuring;
  return {summary, member.next()};
}

Ended Rank::run_drafter() {
  const roles::TestDrafter test = roles::test_drafter(std::getenv("PACELINE_TEST_DRAFTER"));
  roles::MisbehavingMailbox misbehaving(mailbox_, test, [](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  });
  Mailbox& mailbox = test.how == roles::Misbehaviour::none ? mailbox_ : misbehaving;
  const auto place =
      std::find_if(placement_.drafters.begin(), placement_.drafters.end(),
                   [&](const policy::DrafterPlace& drafter) { return drafter.rank == rank_; });
  roles::DrafterRank drafter(mailbox, clock_, std::move(compute_->drafters), *telemetry_,
                             {.place = *place,
                              .window = draft_window(setup_.config.speculation),
                              .max_batch = setup_.config.engine.max_batch});
  drive(drafter, mailbox);
  count(Role::drafter, drafter.tallies());
  return {drafter.summary(), drafter.next()};
}

/// Of the drafters that the rank makes in this role, in their order.
void Rank::count(Role role, std::span<const DraftTally> tallies) {
  auto tally = tallies.begin();
  for (std::size_t d = 0; d < drafts_.size(); ++d) {
    if (!makes_itself(setup_, role, setup_.drafters[d])) continue;
    drafts_[d].tried += tally->tried;
    drafts_[d].accepted += tally->accepted;
    ++tally;
  }
}

Ended Rank::run_spare() {
  roles::Spare spare(mailbox_, rank_);
  drive(spare, mailbox_);
  return {{}, spare.next()};
}

void Rank::summarize(RankSummary summary, double start) {
  const Role role = placement_.role(rank_);
  summary.rank = static_cast<std::uint32_t>(rank_);
  summary.role = static_cast<std::uint32_t>(role);
  summary.leader = group_or_none().leader;
  summary.tp = static_cast<std::uint32_t>(group_or_none().tp);
  summary.idle_seconds = clock_.now() - start - summary.busy_seconds;
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
  summary.peak_rss_bytes = peak_rss_bytes();
  const DrafterMemory drafts = drafter_memory(setup_, role);
  summary.weight_bytes = drafts.weights;
  summary.kv_bytes = drafts.kv;
  if (compute_->executor) {
    summary.weight_bytes += compute_->executor->weight_bytes();
    summary.kv_bytes += compute_->executor->kv_bytes();
  }
  telemetry_->summary(summary);
  mailbox_.send(Address::coordinator(), roles::encode(roles::Summary{summary}));
}

}  // namespace

std::vector<DraftTally> run_role(const fabric::MpiEnvironment& mpi, const Setup& setup,
                                 const Attempt& attempt, const Clock& clock,
                                 fabric::UcxFabric& network, FaultDesk& faults) {
  Rank rank(mpi, setup, attempt, clock, network);
  try {
    rank.measure(mpi);
    rank.run();
  } catch (...) {
    faults.report(current_fault(), [&] { rank.save(); });
  }
  return rank.drafts();
}

}  // namespace paceline::app
