#include "app/rank_role.hpp"

#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/communicator.hpp"
#include "app/compute.hpp"
#include "app/drafters.hpp"
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
#include "runtime/roles/verifier.hpp"

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
  explicit SignalRelay(Mailbox& mailbox) : mailbox_(mailbox) {}
  bool operator()() {
    if (told_ || !stop_signalled()) return true;
    told_ = true;
    mailbox_.send(Address::coordinator(), roles::encode(roles::StopRequest{}));
    return true;
  }

 private:
  Mailbox& mailbox_;
  bool told_ = false;
};

policy::MoveCosts move_costs(io::MoveKvBy by) {
  switch (by) {
    case io::MoveKvBy::recompute:
      return {.compute = 1, .transfer = 1e9, .latency = 0};
    case io::MoveKvBy::both:
      return {.compute = 1, .transfer = 1, .latency = 0};
    case io::MoveKvBy::transfer:
    case io::MoveKvBy::cost:
      break;
  }
  return {};  // all is sent
}

/// What the rank holds beside what it computes with. Later members use earlier ones.
struct RankParts {
  std::unique_ptr<Compute> compute;
  std::unique_ptr<io::TelemetryWriter> telemetry;
  std::unique_ptr<io::ShardWriter> shard;    ///< of a verifier
  std::unique_ptr<roles::KvShare> kv_share;  ///< of verifiers and members
};

RankParts build(const fabric::MpiEnvironment& mpi, const Setup& setup, std::uint32_t attempt,
                const Communicator& members, const Clock& clock, fabric::UcxFabric& network) {
  const int rank = mpi.rank();
  const policy::Layout& layout = setup.layout;
  RankParts parts;
  together(mpi, [&] {
    parts.telemetry = std::make_unique<io::TelemetryWriter>(setup.config.output.directory, attempt,
                                                            rank, rank == 0 ? plan_text(setup) : "",
                                                            drafter_names(setup));
    if (layout.role[rank] != Role::verifier) return;
    parts.shard = std::make_unique<io::ShardWriter>(setup.config.output.directory, attempt, rank);
  });
  parts.compute = make_compute(mpi, setup, members);
  together(mpi, [&] {
    if (!parts.compute->executor) return;
    parts.kv_share =
        std::make_unique<roles::KvShare>(network.blocks(), parts.compute->executor->kv_memory(),
                                         rank - layout.leader(layout.group[rank]), layout.tp,
                                         roles::Recorder{&clock, parts.telemetry.get()});
  });
  return parts;
}

RankSummary run_verifier(const Setup& setup, int rank, const Clock& clock, Mailbox& mailbox,
                         RankParts& parts) {
  const io::RunConfig& config = setup.config;
  const policy::Layout& layout = setup.layout;
  engine::Batcher batcher({.max_batch = config.engine.max_batch,
                           .prefill_chunk = config.engine.prefill_chunk,
                           .kv_block = config.engine.kv_block,
                           .kv_blocks = setup.kv.blocks,
                           .context = setup.model.max_position,
                           .chunk = config.schedule.chunk.value_or(0)},
                          config.sampling, setup.stops,
                          setup.tokenizer ? &*setup.tokenizer : nullptr);
  std::vector<int> members;
  for (int member = 1; member < layout.tp; ++member) members.push_back(rank + member);
  roles::Group group(mailbox, *parts.compute->executor, *parts.kv_share, std::move(members));
  CostTable costs = costs_of_run(setup, group, *parts.compute, clock, rank == 0);
  std::vector<std::unique_ptr<draft::Drafter>> drafters = std::move(parts.compute->drafters);
  roles::RemoteDrafter* remote = nullptr;
  if (layout.drafters > 0) {
    std::vector<int> ranks;
    for (int d = 0; d < layout.drafters; ++d) ranks.push_back(layout.drafter(d));
    auto made = std::make_unique<roles::RemoteDrafter>(
        mailbox, clock, std::move(ranks),
        roles::RemoteOptions{.vocab = setup.model.vocab,
                             .window = draft_window(config.speculation)},
        [rank](const std::string& text) { say("warning: rank {}: {}", rank, text); });
    remote = made.get();
    drafters.insert(drafters.begin(), std::move(made));
  }
  const std::unique_ptr<roles::Speculator> speculator =
      make_speculator(setup, std::move(drafters), std::move(costs), clock);
  roles::Verifier verifier({mailbox, clock, batcher, group, group, speculator.get(), remote,
                            *parts.shard, *parts.telemetry},
                           {.ranks = {rank, layout.tp},
                            .max_batch = config.engine.max_batch,
                            .kv_block = config.engine.kv_block,
                            .flush_seconds = config.output.flush_seconds,
                            .costs = move_costs(config.schedule.move_kv)});
  roles::drive(verifier, mailbox, clock, SignalRelay(mailbox));
  group.finish();
  if (remote != nullptr) remote->close();
  if (speculator != nullptr) parts.telemetry->acceptance(speculator->acceptance());
  parts.shard->close();
  return verifier.summary();
}

/// A group's other ranks: their leader speaks for them, but for a signal that reaches one alone.
RankSummary run_member(const Setup& setup, int rank, const Clock& clock, Mailbox& mailbox,
                       RankParts& parts) {
  roles::Member member(mailbox, *parts.compute->executor, *parts.kv_share,
                       setup.layout.leader(setup.layout.group[rank]),
                       {&clock, parts.telemetry.get()});
  roles::drive(member, mailbox, clock, SignalRelay(mailbox));
  RankSummary summary;
  summary.steps = member.steps();
  summary.busy_seconds = parts.compute->executor->busy_seconds();
  return summary;
}

RankSummary run_drafter(const Setup& setup, const Clock& clock, Mailbox& network,
                        RankParts& parts) {
  const roles::TestDrafter test = roles::test_drafter(std::getenv("PACELINE_TEST_DRAFTER"));
  roles::MisbehavingMailbox misbehaving(network, test, [](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  });
  Mailbox& mailbox = test.how == roles::Misbehaviour::none ? network : misbehaving;
  roles::DrafterRank drafter(mailbox, clock, std::move(parts.compute->drafters), *parts.telemetry,
                             {.window = draft_window(setup.config.speculation),
                              .max_batch = setup.config.engine.max_batch});
  roles::drive(drafter, mailbox, clock, SignalRelay(mailbox));
  return drafter.summary();
}

RankSummary run_spare(const Clock& clock, Mailbox& mailbox) {
  roles::Spare spare(mailbox);
  roles::drive(spare, mailbox, clock, SignalRelay(mailbox));
  return {};
}

}  // namespace

void run_role(const fabric::MpiEnvironment& mpi, const Setup& setup, std::uint32_t attempt,
              const Clock& clock, fabric::UcxFabric& network, FaultDesk& faults) {
  const int rank = mpi.rank();
  const Role role = setup.layout.role[rank];
  const Communicator members = Communicator::split(setup.layout.group[rank], rank);
  Mailbox& mailbox = network.mailbox(Address::Port::role);
  RankParts parts = build(mpi, setup, attempt, members, clock, network);
  try {
    const double start = clock.now();
    RankSummary summary;
    switch (role) {
      case Role::verifier:
        summary = run_verifier(setup, rank, clock, mailbox, parts);
        break;
      case Role::verifier_member:
        summary = run_member(setup, rank, clock, mailbox, parts);
        break;
      case Role::drafter:
        summary = run_drafter(setup, clock, mailbox, parts);
        break;
      case Role::spare:
        summary = run_spare(clock, mailbox);
        break;
    }
    summary.rank = static_cast<std::uint32_t>(rank);
    summary.role = static_cast<std::uint32_t>(role);
    summary.group = setup.layout.group[rank];
    summary.idle_seconds = clock.now() - start - summary.busy_seconds;
    const Mailbox::Traffic messages = mailbox.traffic();
    summary.messages_sent = messages.messages;
    summary.bytes_sent = messages.bytes;
    summary.message_stalls = messages.stalls;
    summary.most_queued = messages.most_queued;
    const BlockTransport::Traffic blocks = network.blocks().traffic();
    summary.transfers_sent = blocks.sent;
    summary.transfers_received = blocks.received;
    summary.transfers_failed = blocks.failed;
    summary.transfer_bytes_sent = blocks.bytes_sent;
    summary.transfer_bytes_received = blocks.bytes_received;
    summary.peak_rss_bytes = peak_rss_bytes();
    const DrafterMemory drafts = drafter_memory(setup, role);
    summary.weight_bytes = drafts.weights;
    summary.kv_bytes = drafts.kv;
    if (parts.compute->executor) {
      summary.weight_bytes += parts.compute->executor->weight_bytes();
      summary.kv_bytes += parts.compute->executor->kv_bytes();
    }
    parts.telemetry->summary(summary);
    parts.telemetry->close();
    mailbox.send(Address::coordinator(), roles::encode(roles::Summary{summary}));
    mailbox.flush();
  } catch (...) {
    faults.report(current_fault(), [&] { parts.shard.reset(); });
  }
}

}  // namespace paceline::app
