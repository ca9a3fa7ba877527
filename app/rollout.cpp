// The main job, top to bottom: prepare, open the output directory, take a role, generate, write the
// final files.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "app/commands.hpp"
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
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/roles/coordinator.hpp"
#include "runtime/roles/verifier.hpp"

namespace paceline::app {
namespace {

/// A communicator of this program, freed at the end of its scope.
class Communicator {
 public:
  /// Ranks of one color; color < 0: none.
  static Communicator split(int color, int rank) {
    Communicator made;
    MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, rank, &made.comm_);
    return made;
  }
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  Communicator& operator=(Communicator&&) = delete;
  ~Communicator() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  [[nodiscard]] MPI_Comm get() const { return comm_; }

 private:
  Communicator() = default;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// The output directory as every rank sees it; opened by rank 0.
struct Output {
  std::unique_ptr<io::RunDirectory> directory;  ///< rank 0
  io::RunManifest manifest;                     ///< rank 0
  io::ResumeState earlier;                      ///< rank 0
  std::uint32_t attempt = 0;
  bool complete = false;
};

void warn(const std::vector<std::string>& warnings, const std::vector<std::string>& known = {}) {
  for (const std::string& warning : warnings) {
    if (std::find(known.begin(), known.end(), warning) == known.end()) say("warning: {}", warning);
  }
}

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
    warn(output.earlier.warnings);
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
                     FaultDesk& faults, const Clock& clock, std::optional<double> deadline) {
  ProgressPrinter printer;
  fabric::Backoff backoff;
  bool announced = false;
  while (!coordinator.over()) {
    if (abandoned.stop_requested()) return;
    faults.watch();
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

RankSummary run_verifier(const Setup& setup, const Clock& clock, Mailbox& mailbox,
                         engine::Executor& executor, roles::Speculator* speculator,
                         io::ShardWriter& shard, TelemetrySink& telemetry) {
  const io::EngineSection& settings = setup.config.engine;
  engine::Batcher batcher({.max_batch = settings.max_batch,
                           .prefill_chunk = settings.prefill_chunk,
                           .kv_block = settings.kv_block,
                           .kv_blocks = setup.kv.blocks,
                           .context = setup.model.max_position},
                          setup.config.sampling, setup.stops,
                          setup.tokenizer ? &*setup.tokenizer : nullptr);
  roles::Verifier verifier({mailbox, clock, batcher, executor, speculator, shard, telemetry},
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
  executor.finish();
  if (speculator != nullptr) telemetry.acceptance(speculator->acceptance());
  shard.close();
  return verifier.summary();
}

/// A group's other ranks: their leader speaks for them, but for a signal that reaches one alone.
std::uint64_t follow(Mailbox& mailbox, engine::Executor& executor) {
  SignalRelay relay(mailbox);
  return executor.follow([&] {
    relay.look();
    mailbox.flush();  // nothing comes for a member, but what it says must go
  });
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

/// This rank's part from weights to summary. In start-up ranks fail together; from then on each
/// works on its own and reports a fault to the desk.
void run_role(const fabric::MpiEnvironment& mpi, const Setup& setup, const Output& output,
              const Clock& clock, Mailbox& mailbox, FaultDesk& faults) {
  const int rank = mpi.rank();
  const Role role = setup.layout.role[rank];
  const Communicator members = Communicator::split(setup.layout.group[rank], rank);

  std::unique_ptr<kernels::Backend> backend;
  fabric::MadeGroup made{std::make_unique<fabric::SingleRankGroup>(), ""};
  together(mpi, [&] {
    if (role != Role::spare) backend = make_backend(setup.backend, setup.threads);
  });
  std::unique_ptr<engine::Executor> executor;
  fabric::SingleRankGroup alone;              // draft models are not sharded
  std::unique_ptr<ThreadPool> draft_threads;  // the backend's sleep meanwhile
  std::unique_ptr<roles::Speculator> speculator;
  std::unique_ptr<io::ShardWriter> shard;
  std::unique_ptr<io::TelemetryWriter> telemetry;
  std::vector<std::string> drafter_names;
  for (const DrafterPlan& plan : setup.drafters) drafter_names.push_back(plan.name);
  together(mpi, [&] {
    telemetry =
        std::make_unique<io::TelemetryWriter>(setup.config.output.directory, output.attempt, rank,
                                              rank == 0 ? plan_text(setup) : "", drafter_names);
    if (role != Role::verifier) return;
    shard = std::make_unique<io::ShardWriter>(setup.config.output.directory, output.attempt, rank);
  });
  // By itself, for it waits for the group's other ranks.
  together(mpi, [&] {
    if (role == Role::spare || setup.layout.tp == 1) return;
    made = fabric::make_group(members.get(), *backend);
    if (rank == 0 && !made.explanation.empty()) say("  {}", made.explanation);
  });
  together(mpi, [&] {
    if (role == Role::spare) return;
    const io::EngineSection& settings = setup.config.engine;
    executor = std::make_unique<engine::Executor>(
        *backend, setup.model, *setup.weights, *made.group, setup.compute, setup.config.sampling,
        setup.stops,
        engine::ExecutorLimits{.max_batch = settings.max_batch,
                               .max_draft = draft_tokens(setup.config.speculation),
                               .prefill_chunk = settings.prefill_chunk,
                               .kv_block = settings.kv_block,
                               .kv_blocks = setup.kv.blocks,
                               .max_position = setup.longest_sequence});
    if (role != Role::verifier) return;
    draft_threads = std::make_unique<ThreadPool>(setup.threads);
    speculator = make_speculator(setup, *backend, alone, *draft_threads, clock);
  });

  try {
    const double start = clock.now();
    RankSummary summary;
    switch (role) {
      case Role::verifier:
        summary =
            run_verifier(setup, clock, mailbox, *executor, speculator.get(), *shard, *telemetry);
        break;
      case Role::verifier_member:
        summary.steps = follow(mailbox, *executor);
        summary.busy_seconds = executor->busy_seconds();
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
    if (executor) {
      summary.weight_bytes = executor->weight_bytes();
      summary.kv_bytes = executor->kv_bytes();
    }
    if (speculator) {
      summary.weight_bytes += drafter_memory(setup).weights;
      summary.kv_bytes += drafter_memory(setup).kv;
    }
    telemetry->summary(summary);
    telemetry->close();
    mailbox.send(Address::coordinator(), roles::encode(roles::Summary{summary}));
  } catch (...) {
    faults.report(current_fault(), [&] { shard.reset(); });
  }
}

/// Those that are not there: a killed run may have left one, and shards.
void write_final_files(const Setup& setup, const Output& output) {
  const std::string& directory = setup.config.output.directory;
  if (!output.complete) {
    const io::FinalFileReport report =
        io::write_final_file(directory, output.manifest, setup.prompts.prompts);
    warn(report.warnings, output.earlier.warnings);
    say("{}: {} trajectories, {} tokens, {:.1f} MiB", report.path, report.trajectories,
        report.tokens, static_cast<double>(report.bytes) / (1024.0 * 1024.0));
  }
  const std::string roles[] = {name_of(Role::verifier), name_of(Role::verifier_member),
                               name_of(Role::drafter), name_of(Role::spare)};
  warn(io::write_telemetry(directory, roles).warnings);
  output.directory->tidy();
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
  if (output.complete) {
    together(mpi, [&] {
      if (first) write_final_files(setup, output);
    });
    return ExitCode::done;
  }

  bool complete = false;
  {
    const Communicator control = Communicator::duplicate();
    FaultDesk faults(mpi, control.get());
    std::vector<Address::Port> ports{Address::Port::role};
    if (first) ports.push_back(Address::Port::coordinator);
    std::unique_ptr<fabric::UcxFabric> network;
    together(mpi, [&] { network = std::make_unique<fabric::UcxFabric>(mpi, ports); });
    network->connect();
    Mailbox& mailbox = network->mailbox(Address::Port::role);
    std::unique_ptr<roles::Coordinator> coordinator;
    std::atomic<bool> coordinated{!first};
    std::jthread thread;
    if (first) {
      coordinator = std::make_unique<roles::Coordinator>(
          network->mailbox(Address::Port::coordinator), setup.layout,
          work_list(setup, output.earlier), setup.prompts.prompts, setup.config.sampling.seed,
          output.earlier.finished.size());
      const std::optional<double> deadline =
          limit.seconds ? std::optional(*limit.seconds - setup.config.limits.margin) : std::nullopt;
      thread = std::jthread([&, deadline](const std::stop_token& abandoned) {
        try {
          run_coordinator(abandoned, *coordinator, faults, clock, deadline);
          coordinated = true;
          mailbox.wake();
        } catch (...) {
          abort_job(mpi, current_fault());
        }
      });
    }
    run_role(mpi, setup, output, clock, mailbox, faults);
    if (first) {
      while (!coordinated) {  // what this role has sent may still be on its way
        mailbox.wait(1);
        while (mailbox.poll()) {
        }
      }
      thread.join();
      complete = coordinator->complete();
      print_accounting(coordinator->summaries(), clock.now());
    }
    network->close();
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
