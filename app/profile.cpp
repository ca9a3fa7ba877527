#include <fmt/format.h>

#include <algorithm>

#include "app/commands.hpp"
#include "app/compute.hpp"
#include "app/job.hpp"
#include "app/report.hpp"
#include "app/setup.hpp"
#include "app/terminal.hpp"
#include "io/config/cost_profile.hpp"
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/policy/draft_ladder.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/participant.hpp"

namespace paceline::app {

// All groups measure at once, for in a run they compute at once; the first one's table is written.
ExitCode profile(const fabric::MpiEnvironment& mpi, const ProfileArguments& arguments) {
  const SteadyClock clock;
  // Every rank verifies and drafts, so that all there is gets measured, whatever the configuration
  // goes on to do with it; its profile is the one to be made.
  RunArguments all = arguments.run;
  for (const char* setting : {"layout.drafters=0", "speculation.mode=auto", "engine.profile=auto"})
    all.overrides.emplace_back(setting);
  const Setup setup = prepare(mpi, all);
  if (mpi.rank() == 0) {
    print_banner(setup, mpi.size());
    print_plan(setup, time_limit(setup.config.limits.wall_clock));
  }
  const Role role = setup.layout.role[mpi.rank()];
  const Communicator members = Communicator::split(setup.layout.group[mpi.rank()], mpi.rank());
  const std::unique_ptr<Compute> compute = make_compute(mpi, setup, members);
  const Address::Port port = Address::Port::role;
  fabric::UcxFabric network(mpi, {&port, 1});
  network.connect();
  Mailbox& mailbox = network.mailbox(port);
  roles::CostMeasurement measured;
  if (compute->executor) {
    const int leader = setup.layout.leader(setup.layout.group[mpi.rank()]);
    roles::KvShare share(network.blocks(), compute->executor->kv_memory(), mpi.rank() - leader,
                         setup.layout.tp);
    if (role == Role::verifier) {
      std::vector<int> others;
      for (int rank = leader + 1; rank < leader + setup.layout.tp; ++rank) others.push_back(rank);
      roles::Group group(mailbox, *compute->executor, share, std::move(others));
      roles::MeasurementBudget budget;
      budget.seconds = arguments.seconds;
      measured = measure(setup, group, *compute, clock, budget);
      group.finish();
    } else {
      roles::Member member(mailbox, *compute->executor, share, leader);
      roles::drive(member, mailbox, clock, [] { return true; });
    }
  }
  network.close();
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    measured.table.conditions.fingerprint = setup.weights->fingerprint();
    io::write_cost_profile(arguments.output, measured.table);
    say("{}: {} measurements in {:.1f} s; set engine.profile to it", arguments.output,
        measured.measurements, measured.seconds);
    const double batch = std::min(static_cast<double>(setup.config.engine.max_batch),
                                  static_cast<double>(setup.responses) / setup.layout.groups);
    const std::string ladders = policy::ladder_text(policy::build_ladders(
        measured.table, {std::max(1.0, batch), 0, setup.config.speculation.max_length}));
    if (ladders.empty()) return;
    write_to_user(fmt::format(
        "speedup over plain decoding by how many drafted tokens are accepted (and how many are "
        "best drafted), {:.0f} requests:\n{}",
        std::max(1.0, batch), ladders));
  });
  return ExitCode::done;
}

}  // namespace paceline::app
