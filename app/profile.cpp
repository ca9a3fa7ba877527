#include <optional>

#include "app/commands.hpp"
#include "app/compute.hpp"
#include "app/costs.hpp"
#include "app/job.hpp"
#include "app/report.hpp"
#include "app/setup.hpp"
#include "app/terminal.hpp"
#include "io/config/cost_profile.hpp"
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::app {

// The first group's table is written.
ExitCode profile(const fabric::MpiEnvironment& mpi, const ProfileArguments& arguments) {
  const SteadyClock clock;
  const Setup setup = prepare(mpi, arguments.run);
  if (mpi.rank() == 0) {
    print_banner(setup, mpi.size());
    print_plan(setup, time_limit(setup.config.limits.wall_clock));
  }
  const policy::Placement& placement = setup.layout.placement;
  const std::unique_ptr<Compute> compute = make_compute(mpi, setup);
  const Address::Port port = Address::Port::role;
  fabric::UcxFabric network(mpi, {&port, 1});
  network.connect();
  roles::CostMeasurement measured;
  {
    std::optional<roles::KvShare> share;
    if (compute->executor) {
      const auto [leader, tp] = placement.groups[placement.group(mpi.rank())];
      share.emplace(network.blocks(), compute->executor->kv_memory(), mpi.rank() - leader, tp);
    }
    roles::MeasurementBudget budget;
    budget.seconds = arguments.seconds;
    measured = measure(
        {mpi, setup, *compute, share ? &*share : nullptr, network.mailbox(port), clock}, budget);
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
