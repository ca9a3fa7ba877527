#include <fmt/format.h>

#include "app/commands.hpp"
#include "app/compute.hpp"
#include "app/job.hpp"
#include "app/report.hpp"
#include "app/setup.hpp"
#include "app/terminal.hpp"
#include "io/config/cost_profile.hpp"

namespace paceline::app {

// All groups measure at once, for in a run they compute at once; the first one's table is written.
ExitCode profile(const fabric::MpiEnvironment& mpi, const ProfileArguments& arguments) {
  const SteadyClock clock;
  const Setup setup = prepare(mpi, arguments.run);
  if (mpi.rank() == 0) {
    print_banner(setup, mpi.size());
    print_plan(setup, time_limit(setup.config.limits.wall_clock));
  }
  const Role role = setup.layout.role[mpi.rank()];
  const Communicator members = Communicator::split(setup.layout.group[mpi.rank()], mpi.rank());
  const std::unique_ptr<Compute> compute = make_compute(mpi, setup, members);
  roles::CostMeasurement measured;
  if (role == Role::verifier) {
    roles::MeasurementBudget budget;
    budget.seconds = arguments.seconds;
    measured = measure(setup, *compute, clock, budget);
    compute->executor->finish();
  } else if (role == Role::verifier_member) {
    compute->executor->follow([] {});
  }
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
