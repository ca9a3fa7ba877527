// The main job, top to bottom: prepare, open the output directory, take a role, generate, write the
// final files.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "app/commands.hpp"
#include "app/compute.hpp"
#include "app/job.hpp"
#include "app/report.hpp"
#include "app/setup.hpp"
#include "app/signals.hpp"
#include "app/terminal.hpp"
#include "app/wall_clock.hpp"
#include "io/hdf5/digest.hpp"
#include "io/hdf5/final_file.hpp"
#include "io/hdf5/run_directory.hpp"
#include "io/hdf5/shard_writer.hpp"
#include "io/hdf5/telemetry.hpp"
#include "runtime/core/wire.hpp"
#include "runtime/engine/batcher.hpp"
#include "runtime/engine/executor.hpp"
#include "runtime/fabric/backoff.hpp"
#include "runtime/fabric/make_group.hpp"
#include "runtime/fabric/mpi_group.hpp"
#include "runtime/fabric/mpi_mailbox.hpp"
#include "runtime/roles/coordinator.hpp"
#include "runtime/roles/verifier.hpp"

namespace paceline::app {
namespace {

/// The output directory as every rank sees it; opened by rank 0.
struct Output {
  std::unique_ptr<io::RunDirectory> directory;  ///< rank 0
  io::RunManifest manifest;                     ///< rank 0
  io::ResumeState earlier;                      ///< rank 0
  std::uint32_t attempt = 0;
  bool complete = false;
};

Output open_output(const fabric::MpiEnvironment& mpi, const Setup& setup, bool resume) {
  Output output;
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    output.manifest = manifest_of(setup);
    output.directory = std::make_unique<io::RunDirectory>(
        setup.config.output.directory, output.manifest, setup.prompts.prompts, resume);
    output.complete = output.directory->complete();
    if (!output.directory->note().empty()) say("{}", output.directory->note());
    if (output.complete) return;
    output.attempt = output.directory->attempt();
    output.earlier = output.directory->read_state();
    for (const std::string& warning : output.earlier.warnings) say("warning: {}", warning);
  });
  WireWriter writer;
  writer.put(output.attempt);
  writer.put(output.complete);
  std::vector<std::byte> bytes = writer.take();
  mpi.broadcast(bytes);
  WireReader reader(bytes);
  reader.get(output.attempt);
  reader.get(output.complete);
  return output;
}

/// Every request that is not finished, in leasing order: siblings side by side.
std::vector<Trajectory> work_list(const Setup& setup, io::ResumeState& earlier) {
  std::vector<std::uint32_t> order(setup.prompts.prompts.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  if (setup.config.prompts.shuffle) {
    std::mt19937_64 random(setup.config.sampling.seed);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  }
  std::map<RequestId, Trajectory> partial;
  for (Trajectory& t : earlier.partial) {
    const RequestId id = t.id;
    partial.emplace(id, std::move(t));
  }
  std::vector<Trajectory> work;
  for (const std::uint32_t prompt : order) {
    for (std::int32_t sample = 0; sample < setup.config.prompts.samples; ++sample) {
      const RequestId id{prompt, static_cast<std::uint32_t>(sample)};
      if (std::binary_search(earlier.finished.begin(), earlier.finished.end(), id)) continue;
      Trajectory t;
      if (const auto it = partial.find(id); it != partial.end()) t = std::move(it->second);
      t.id = id;
      t.finish_reason = FinishReason::partial;
      t.reward = NAN;
      t.weight_version = setup.config.model.weight_version;
      work.push_back(std::move(t));
    }
  }
  return work;
}

/// Rank 0's second thread.
void run_coordinator(const std::stop_token& abandoned, roles::Coordinator& coordinator,
                     const Clock& clock, std::optional<double> deadline) {
  ProgressPrinter printer;
  fabric::Backoff backoff;
  bool announced = false;
  while (!coordinator.over() && !abandoned.stop_requested()) {
    if (coordinator.turn()) backoff.reset();
    const bool late = deadline && clock.now() >= *deadline;
    if (stop_signalled() || late) {
      if (!announced) {
        say("\n{}: stopping after the current step",
            late ? "the wall-clock limit is near" : "asked to stop");
      }
      announced = true;
      coordinator.stop();
    }
    printer.update(clock.now(), coordinator.progress());
    backoff.pause();
  }
  printer.end(clock.now(), coordinator.progress());
}

std::uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

/// Passes a signal on to the coordinator, once: it may have reached this rank alone.
class SignalRelay {
 public:
  explicit SignalRelay(Mailbox& mailbox) : mailbox_(mailbox) {}
  void look() {
    if (told_ || !stop_signalled()) return;
    told_ = true;
    mailbox_.send(Address::coordinator(), roles::encode(roles::StopRequest{}));
  }

 private:
  Mailbox& mailbox_;
  bool told_ = false;
};

RankSummary run_verifier(const Setup& setup, const Output& output, int rank, const Clock& clock,
                         Mailbox& mailbox, Compute& compute, TelemetrySink& telemetry) {
  const io::EngineSection& settings = setup.config.engine;
  CostTable costs = costs_of_run(setup, compute, clock, rank == 0);
  const std::unique_ptr<roles::Speculator> speculator =
      make_speculator(setup, std::move(compute.drafters), std::move(costs), clock);
  engine::Batcher batcher({.max_batch = settings.max_batch,
                           .prefill_chunk = settings.prefill_chunk,
                           .kv_block = settings.kv_block,
                           .kv_blocks = setup.kv.blocks,
                           .context = setup.model.max_position},
                          setup.config.sampling, setup.stops,
                          setup.tokenizer ? &*setup.tokenizer : nullptr);
  io::ShardWriter shard(setup.config.output.directory, output.attempt, rank);
  roles::Verifier verifier(
      {mailbox, clock, batcher, *compute.executor, speculator.get(), shard, telemetry},
      settings.max_batch, setup.config.output.flush_seconds);
  SignalRelay relay(mailbox);
  fabric::Backoff backoff;
  while (!verifier.finished()) {
    relay.look();
    if (verifier.turn()) {
      backoff.reset();
    } else {
      backoff.pause();
    }
  }
  compute.executor->finish();
  if (speculator != nullptr) telemetry.acceptance(speculator->acceptance());
  shard.close();
  return verifier.summary();
}

/// A group's other ranks: their leader speaks for them, but for a signal that reaches one alone.
std::uint64_t follow(Mailbox& mailbox, engine::Executor& executor) {
  SignalRelay relay(mailbox);
  return executor.follow([&] { relay.look(); });
}

void run_spare(Mailbox& mailbox) {
  SignalRelay relay(mailbox);
  fabric::Backoff backoff(5000);
  while (true) {
    relay.look();
    while (const std::optional<Envelope> envelope = mailbox.poll()) {
      if (std::holds_alternative<roles::Finish>(roles::decode(envelope->bytes))) return;
    }
    backoff.pause();
  }
}

/// This rank's part from weights to summary.
void run_role(const fabric::MpiEnvironment& mpi, const Setup& setup, const Output& output,
              const Clock& clock, Mailbox& mailbox) {
  const int rank = mpi.rank();
  const Role role = setup.layout.role[rank];
  const Communicator members = Communicator::split(setup.layout.group[rank], rank);

  const std::unique_ptr<Compute> compute = make_compute(mpi, setup, members);
  std::unique_ptr<io::TelemetryWriter> telemetry;
  std::vector<std::string> drafter_names;
  for (const DrafterPlan& plan : setup.drafters) drafter_names.push_back(plan.name);
  together(mpi, [&] {
    telemetry =
        std::make_unique<io::TelemetryWriter>(setup.config.output.directory, output.attempt, rank,
                                              rank == 0 ? plan_text(setup) : "", drafter_names);
  });

  const double start = clock.now();
  RankSummary summary;
  switch (role) {
    case Role::verifier:
      summary = run_verifier(setup, output, rank, clock, mailbox, *compute, *telemetry);
      break;
    case Role::verifier_member:
      summary.steps = follow(mailbox, *compute->executor);
      summary.busy_seconds = compute->executor->busy_seconds();
      break;
    case Role::drafter:
    case Role::spare:
      run_spare(mailbox);
      break;
  }
  summary.rank = static_cast<std::uint32_t>(rank);
  summary.role = static_cast<std::uint32_t>(role);
  summary.group = setup.layout.group[rank];
  summary.idle_seconds = clock.now() - start - summary.busy_seconds;
  summary.messages_sent = mailbox.traffic().messages;
  summary.bytes_sent = mailbox.traffic().bytes;
  summary.peak_rss_bytes = peak_rss_bytes();
  if (compute->executor) {
    summary.weight_bytes = compute->executor->weight_bytes();
    summary.kv_bytes = compute->executor->kv_bytes();
  }
  if (role == Role::verifier) {
    summary.weight_bytes += drafter_memory(setup).weights;
    summary.kv_bytes += drafter_memory(setup).kv;
  }
  telemetry->summary(summary);
  telemetry->close();
  mailbox.send(Address::coordinator(), roles::encode(roles::Summary{summary}));
}

void write_final_files(const Setup& setup, const Output& output) {
  const std::string& directory = setup.config.output.directory;
  const io::FinalFileReport report =
      io::write_final_file(directory, output.manifest, setup.prompts.prompts);
  const std::string roles[] = {name_of(Role::verifier), name_of(Role::verifier_member),
                               name_of(Role::drafter), name_of(Role::spare)};
  const io::TelemetryReport telemetry = io::write_telemetry(directory, roles);
  for (const auto* warnings : {&report.warnings, &telemetry.warnings}) {
    for (const std::string& warning : *warnings) say("warning: {}", warning);
  }
  say("{}: {} trajectories, {} tokens, {:.1f} MiB", report.path, report.trajectories, report.tokens,
      static_cast<double>(report.bytes) / (1024.0 * 1024.0));
}

}  // namespace

ExitCode rollout(const fabric::MpiEnvironment& mpi, const RunArguments& arguments) {
  const SteadyClock clock;
  const bool first = mpi.rank() == 0;
  Setup setup = prepare(mpi, arguments);
  TimeLimit limit;
  if (first) {
    limit = time_limit(setup.config.limits.wall_clock);
    print_banner(setup, mpi.size());
    print_plan(setup, limit);
  }
  Output output = open_output(mpi, setup, arguments.resume);
  if (output.complete) return ExitCode::done;

  const Communicator control = Communicator::duplicate();
  bool complete = false;
  {
    fabric::MpiMailbox mailbox(control.get(), Address::Port::role);
    std::unique_ptr<fabric::MpiMailbox> coordinator_mailbox;
    std::unique_ptr<roles::Coordinator> coordinator;
    std::jthread thread;
    if (first) {
      coordinator_mailbox =
          std::make_unique<fabric::MpiMailbox>(control.get(), Address::Port::coordinator);
      coordinator = std::make_unique<roles::Coordinator>(
          *coordinator_mailbox, setup.layout, work_list(setup, output.earlier),
          setup.prompts.prompts, setup.config.sampling.seed, output.earlier.finished.size());
      const std::optional<double> deadline =
          limit.seconds ? std::optional(*limit.seconds - setup.config.limits.margin) : std::nullopt;
      thread = std::jthread([&, deadline](const std::stop_token& abandoned) {
        try {
          run_coordinator(abandoned, *coordinator, clock, deadline);
        } catch (const std::exception& error) {
          abort_job(mpi, ExitCode::internal,
                    fmt::format("coordinator: internal fault: {}", error.what()));
        }
      });
    }
    run_role(mpi, setup, output, clock, mailbox);
    if (first) {
      thread.join();
      complete = coordinator->complete();
      print_accounting(coordinator->summaries(), clock.now());
    }
    mpi.barrier();
  }

  together(mpi, [&] {
    if (!first) return;
    if (!complete) {
      throw Error(ExitCode::try_again,
                  "stopped before the end: run again with --resume to continue");
    }
    write_final_files(setup, output);
  });
  return ExitCode::done;
}

}  // namespace paceline::app
