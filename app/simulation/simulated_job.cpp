#include "app/simulation/simulated_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <memory>
#include <utility>

#include "app/assembly/coordination.hpp"
#include "app/assembly/draft_servers.hpp"
#include "app/assembly/drafters.hpp"
#include "app/simulation/simulated_rank.hpp"
#include "app/terminal/terminal.hpp"
#include "io/telemetry/telemetry.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/roles/draft_server.hpp"
#include "runtime/sim/draws.hpp"

namespace paceline::app {
namespace {

using RealTime = std::chrono::steady_clock;

constexpr double kNever = std::numeric_limits<double>::infinity();

/// CPU seconds of this thread, which hardly depend on other work on the machine.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_since(RealTime::time_point begin) {
  return std::chrono::duration<double>(RealTime::now() - begin).count();
}

/// Stores a rank's finished responses. A kill loses the responses that were not flushed yet.
class Disk final : public TrajectorySink {
 public:
  explicit Disk(Finished& finished) : finished_(finished) {}
  void append(const Trajectory& trajectory) override { waiting_.push_back(trajectory); }
  void flush() override {
    for (Trajectory& t : waiting_) {
      if (t.finish_reason == FinishReason::partial) continue;
      const RequestId id = t.id;
      if (!finished_.emplace(id, std::move(t)).second)
        throw std::logic_error("a response is finished twice");
    }
    waiting_.clear();
  }

 private:
  Finished& finished_;
  std::vector<Trajectory> waiting_;
};

/// Notes the times at which responses end, and passes all records to a writer, if there is one.
class Telemetry final : public TelemetrySink {
 public:
  Telemetry(std::vector<double>& ends, std::unique_ptr<io::TelemetryWriter> kept)
      : ends_(ends), kept_(std::move(kept)) {}
  void step(const StepRecord& record) override {
    if (kept_) kept_->step(record);
  }
  void event(const RequestEvent& event) override {
    if (event.kind == RequestEventKind::finished) ends_.push_back(event.time);
    if (kept_) kept_->event(event);
  }
  void transfer(const TransferRecord& record) override {
    if (kept_) kept_->transfer(record);
  }
  void pool(const KvPoolRecord& record) override {
    if (kept_) kept_->pool(record);
  }
  void draft_memory(const DraftMemoryRecord& record) override {
    if (kept_) kept_->draft_memory(record);
  }
  void stop_point(const StopPoint& point) override {
    if (kept_) kept_->stop_point(point);
  }
  void acceptance(std::span<const AcceptanceCell> cells) override {
    if (kept_) kept_->acceptance(cells);
  }
  void role(const RoleRecord& record) override {
    if (kept_) kept_->role(record);
  }
  void summary(const RankSummary& summary) override {
    if (kept_) kept_->summary(summary);
  }
  void flush() override {
    if (kept_) kept_->flush();
  }

 private:
  std::vector<double>& ends_;
  std::unique_ptr<io::TelemetryWriter> kept_;
};

/// Runs the coordinator, and measures the CPU seconds of its turns with messages. The actor joins
/// the world before it gets a coordinator, because the coordinator's constructor may send messages,
/// and sim::Post reads the time of a message from the actor's clock.
class CoordinatorActor final : public sim::Actor {
 public:
  explicit CoordinatorActor(SimulatedAttempt& attempt) : attempt_(attempt) {}
  void lead(std::unique_ptr<roles::Coordinator> coordinator) {
    coordinator_ = std::move(coordinator);
  }
  [[nodiscard]] const roles::Coordinator& coordinator() const { return *coordinator_; }
  protocol::Turn turn() override {
    const double begin = processor_seconds();
    const protocol::Turn turn = coordinator_->turn();
    if (!turn.worked) return turn;
    const double seconds = processor_seconds() - begin;
    attempt_.coordinator_seconds += seconds;
    attempt_.coordinator_longest = std::max(attempt_.coordinator_longest, seconds);
    return turn;
  }
  bool over() const override { return coordinator_->over(); }

 private:
  std::unique_ptr<roles::Coordinator> coordinator_;
  SimulatedAttempt& attempt_;
};

/// Runs a draft server. The job ends without waiting for draft servers.
class DraftServerActor final : public sim::Actor {
 public:
  void serve(std::unique_ptr<roles::DraftServer> server) { server_ = std::move(server); }
  protocol::Turn turn() override { return server_->turn(); }
  bool over() const override { return false; }

 private:
  std::unique_ptr<roles::DraftServer> server_;
};

sim::Links links_of(const io::SimulationSection& simulation) {
  const io::SimulatedLinks& link = simulation.link;
  const double gpus = simulation.gpus_per_rank;
  sim::Links links;
  links.node = {link.kNodeLatency, gpus * link.node_bandwidth};
  links.network = {link.kNetworkLatency, gpus * link.network_bandwidth};
  return links;
}

std::vector<int> nodes_of(const Machine& machine) {
  std::vector<int> nodes;
  for (const fabric::RankFacts& fact : machine.ranks) nodes.push_back(fact.node);
  return nodes;
}

/// Upper bound on a rank's bytes of KV. Used only if KV is not checked (test.check_kv).
std::size_t most_kv(const Inputs& inputs, const Plan& plan) {
  return kv_shape(inputs, 1, false).block_bytes() * (plan.memory.kv.blocks + plan.memory.kv_gain);
}

/// Real bytes of KV for one simulated byte. If KV is checked (test.check_kv), a simulated rank has
/// fewer bytes than a real one. With this factor, transfers take as long as on a real rank.
double real_bytes_of_one(const Inputs& inputs) {
  const auto bytes = [&](bool looked_at) {
    return static_cast<double>(kv_shape(inputs, 1, looked_at).block_bytes());
  };
  return bytes(false) / bytes(inputs.config.test.check_kv);
}

/// Response lengths for `schedule.policy: oracle`: from the run that schedule.lengths names, or
/// from the workload if no run is named.
ResponseTokens lengths_of(const SimulationSetup& simulation) {
  ResponseTokens lengths = known_lengths(simulation.inputs);
  if (!lengths.empty()) return lengths;
  const auto& requests = simulation.workload->requests;
  for (std::uint32_t p = 0; p < requests.size(); ++p) {
    for (std::uint32_t s = 0; s < requests[p].size(); ++s)
      lengths[{p, s}] = static_cast<std::uint32_t>(requests[p][s].length);
  }
  return lengths;
}

class Job {
 public:
  Job(const SimulationSetup& simulation, std::uint32_t attempt, Finished& finished);
  SimulatedAttempt run();

 private:
  void add_draft_servers();
  void spread_faults();
  [[nodiscard]] std::string halted() const;
  std::unique_ptr<io::TelemetryWriter> writer(int rank) const;
  [[nodiscard]] double chance(std::uint32_t what, int rank) const {
    return sim::uniform({simulation_.inputs.config.sampling.seed, attempt_}, sim::Draw::fault,
                        static_cast<std::uint32_t>(rank), what);
  }

  const SimulationSetup& simulation_;
  const io::SimulationSection& settings_;
  const io::TestSection& test_;
  std::uint32_t attempt_;
  Finished& finished_;
  SimulatedAttempt came_to_;
  sim::World world_;
  sim::Network network_;
  sim::Post post_;
  sim::BlockWire blocks_;
  sim::AddressRange addresses_;
  std::vector<sim::Instance> instances_;
  std::unique_ptr<policy::Scheduler> scheduler_;
  CoordinatorActor coordinator_actor_;
  std::vector<std::unique_ptr<Disk>> disks_;
  std::vector<std::unique_ptr<Telemetry>> telemetry_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::map<sim::ActorId, std::unique_ptr<DraftServerActor>> draft_servers_;
};

Job::Job(const SimulationSetup& simulation, std::uint32_t attempt, Finished& finished)
    : simulation_(simulation),
      settings_(simulation.inputs.config.simulation),
      test_(simulation.inputs.config.test),
      attempt_(attempt),
      finished_(finished),
      network_(links_of(settings_), nodes_of(simulation.machine)),
      post_(world_, network_,
            {simulation.inputs.config.sampling.seed + attempt, test_.faults.delayed,
             test_.faults.delay, test_.faults.duplicated}),
      blocks_(world_, network_,
              {.copies = test_.check_kv,
               .bytes_per_byte = real_bytes_of_one(simulation.inputs),
               .failing = test_.faults.lost_blocks,
               .seed = simulation.inputs.config.sampling.seed + attempt}),
      addresses_(test_.check_kv ? 0 : most_kv(simulation.inputs, simulation.plan)),
      scheduler_(make_scheduler(simulation.inputs, simulation.machine, simulation.plan)),
      coordinator_actor_(came_to_) {
  const Inputs& inputs = simulation_.inputs;
  const Machine& machine = simulation_.machine;
  const Plan& plan = simulation_.plan;
  Mailbox& mailbox = post_.open(Address::coordinator());
  if (simulation.instance) {
    const int gpus = simulation.instance->gpus;
    instances_.assign(machine.ranks.size() / gpus, sim::Instance(*simulation.instance));
  }
  const SimulatedSurroundings around{
      simulation_, world_, post_, blocks_, addresses_, instances_, [](const std::string& text) {
        say("warning: {}", text);
      }};
  for (int rank = 0; rank < static_cast<int>(machine.ranks.size()); ++rank) {
    disks_.push_back(std::make_unique<Disk>(finished_));
    telemetry_.push_back(std::make_unique<Telemetry>(came_to_.ends, writer(rank)));
    ranks_.push_back(
        std::make_unique<SimulatedRank>(around, rank, *disks_.back(), *telemetry_.back()));
  }
  if (settings_.cores) {
    for (int node = 0; node < settings_.nodes; ++node) world_.set_cores(node, *settings_.cores);
  }
  std::vector<RequestId> done;
  for (const auto& [id, trajectory] : finished_) done.push_back(id);
  // In a real job the coordinator is a thread of rank 0 that mostly sleeps. Here it has a host
  // without ranks, so that it takes no core from ranks.
  post_.belongs(Address::coordinator(), world_.add(coordinator_actor_, settings_.nodes));
  coordinator_actor_.lead(std::make_unique<roles::Coordinator>(
      mailbox, *scheduler_, plan.layout.placement, work_list(inputs, done, {}),
      make_order(inputs, lengths_of(simulation_), settings_.instance), inputs.prompts.prompts,
      coordinator_options(inputs, plan), done.size()));
  add_draft_servers();
  spread_faults();
}

/// Adds the draft servers to the coordinator's host, because they, too, mostly sleep in a real job.
void Job::add_draft_servers() {
  const Inputs& inputs = simulation_.inputs;
  const Plan& plan = simulation_.plan;
  for (const int rank : plan.draft_servers.ranks) {
    const Address address{rank, Address::Port::draft_server};
    Mailbox& mailbox = post_.open(address);
    auto actor = std::make_unique<DraftServerActor>();
    const sim::ActorId id = world_.add(*actor, settings_.nodes);
    post_.belongs(address, id);
    actor->serve(std::make_unique<roles::DraftServer>(
        mailbox, world_.clock(id), draft_log_limits(inputs, own_samples(inputs))));
    draft_servers_.emplace(id, std::move(actor));
  }
}

std::unique_ptr<io::TelemetryWriter> Job::writer(int rank) const {
  const Inputs& inputs = simulation_.inputs;
  const Machine& machine = simulation_.machine;
  const Plan& plan = simulation_.plan;
  if (inputs.config.output.directory.empty()) return nullptr;
  const io::SimulationSection& simulation = inputs.config.simulation;
  const bool gpus = machine.backend.on_device();  // otherwise CPU threads compute
  const std::int32_t cores = machine.threads * machine.ranks[rank].own_cores();
  return std::make_unique<io::TelemetryWriter>(
      inputs.config.output.directory, attempt_, rank,
      io::TelemetryOrigin{.plan = rank == 0 ? simulation_text(simulation_) : "",
                          .drafter_names = drafter_names(plan),
                          .host = fmt::format("node-{}", machine.ranks[rank].node),
                          .cores = gpus ? 0U : static_cast<std::uint32_t>(cores),
                          .gpus = gpus ? static_cast<std::uint32_t>(simulation.gpus_per_rank) : 0U,
                          .started = 0.0});
}

void Job::spread_faults() {
  const io::TestFaults& faults = test_.faults;
  const policy::Placement& placement = simulation_.plan.layout.placement;
  for (const auto& rank : ranks_) {
    const int number = static_cast<int>(&rank - ranks_.data());
    if (chance(0, number) < faults.slow_ranks) world_.slow(rank->actor(), faults.slow_factor, 0);
    if (placement.role(number) == Role::drafter && chance(1, number) < faults.stalled_drafters)
      world_.stall(rank->actor(), faults.stall * chance(2, number), faults.stall);
  }
  for (const auto& [actor, server] : draft_servers_) {
    if (chance(1, actor) < faults.stalled_drafters)
      world_.stall(actor, faults.stall * chance(2, actor), faults.stall);
  }
}

/// The error message if no actor wants a turn although the run is not over.
std::string Job::halted() const {
  const roles::Coordinator& coordinator = coordinator_actor_.coordinator();
  const roles::Progress p = coordinator.progress();
  return fmt::format(
      "the simulated job has come to a halt after {:.3f} s: {} of {} responses finished, {} not "
      "flushed, {} active, {} waiting; the coordinator waits for {}",
      world_.now(), p.finished, p.total, p.unflushed, p.active, p.waiting,
      counted(coordinator.awaited().size(), "rank"));
}

SimulatedAttempt Job::run() {
  const auto begin = RealTime::now();
  const roles::Coordinator& coordinator = coordinator_actor_.coordinator();
  // Only the first attempt is killed.
  const double kill = attempt_ == 0 ? test_.faults.kill.value_or(kNever) : kNever;
  bool killed = false;
  while (!coordinator.over() && !killed) {
    if (!world_.step()) throw Error(ExitCode::internal, halted());
    killed = world_.now() >= kill;
  }
  came_to_.complete = coordinator.complete();
  came_to_.progress = coordinator.progress();
  came_to_.summaries = coordinator.summaries();
  for (const std::uint64_t messages : coordinator.heard())
    came_to_.coordinator_messages += messages;
  std::sort(came_to_.ends.begin(), came_to_.ends.end());
  came_to_.seconds = killed || came_to_.ends.empty() ? world_.now() : came_to_.ends.back();
  came_to_.turns = world_.turns();
  came_to_.wall_seconds = seconds_since(begin);
  return std::move(came_to_);
}

}  // namespace

SimulatedAttempt run_attempt(const SimulationSetup& simulation, std::uint32_t attempt,
                             Finished& finished) {
  return Job(simulation, attempt, finished).run();
}

}  // namespace paceline::app
