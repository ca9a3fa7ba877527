#include <fmt/format.h>

#include "app/commands.hpp"
#include "app/compute.hpp"
#include "app/job.hpp"
#include "app/report.hpp"
#include "app/setup.hpp"
#include "app/terminal.hpp"
#include "io/config/cost_profile.hpp"
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/roles/group.hpp"
#include "runtime/roles/participant.hpp"

namespace paceline::app {

// All groups measure at once, for in a run they compute at once; the first one's table is written.
ExitCode profile(const fabric::MpiEnvironment& mpi, const ProfileArguments& arguments) {
  const SteadyClock clock;
  const Setup setup = prepare(mpi, arguments.run);
  if (mpi.rank() == 0) {
    print_banner(setup, mpi.size());
    print_plan(setup, time_limit(setup.config.limits.wall_clock));
  }
  const policy::Placement& placement = setup.layout.placement;
  const Role role = placement.role(mpi.rank());
  const std::unique_ptr<Compute> compute = make_compute(mpi, setup);
  const Address::Port port = Address::Port::role;
  fabric::UcxFabric network(mpi, {&port, 1});
  network.connect();
  Mailbox& mailbox = network.mailbox(port);
  roles::CostMeasurement measured;
  if (compute->executor) {
    const auto [leader, tp] = placement.groups[placement.group(mpi.rank())];
    roles::KvShare share(network.blocks(), compute->executor->kv_memory(), mpi.rank() - leader, tp);
    if (role == Role::verifier) {
      std::vector<int> others;
      for (int rank = leader + 1; rank < leader + tp; ++rank) others.push_back(rank);
      roles::Group group(mailbox, *compute->executor, share, std::move(others));
      roles::MeasurementBudget budget;
      budget.seconds = arguments.seconds;
      measured = measure(setup, group, *compute, clock, budget);
      group.finish({});
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
  });
  return ExitCode::done;
}

}  // namespace paceline::app
