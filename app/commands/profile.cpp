#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "app/assembly/compute.hpp"
#include "app/assembly/costs.hpp"
#include "app/assembly/job.hpp"
#include "app/assembly/plan.hpp"
#include "app/assembly/plan_text.hpp"
#include "app/commands/commands.hpp"
#include "app/terminal/standing.hpp"
#include "app/terminal/terminal.hpp"
#include "io/config/cost_profile.hpp"
#include "runtime/core/counted.hpp"
#include "runtime/core/error.hpp"
#include "runtime/fabric/ucx_fabric.hpp"
#include "runtime/roles/group.hpp"

namespace paceline::app {

// Rank 0 writes the costs of its own group. All groups must have the same tensor-parallel degree,
// because a profile holds the costs of one degree.
ExitCode profile(const fabric::MpiEnvironment& mpi, const ProfileArguments& arguments) {
  const SteadyClock clock;
  // Every rank verifies and drafts, so that all costs are measured. Configured roles are ignored,
  // and so are configured profiles, because this command may be run to replace them.
  RunArguments all = arguments.run;
  for (const char* setting : {"layout.drafters=0", "speculation.mode=auto", "engine.profile=auto",
                              "engine.tail_profile=auto", "layout.tail_tp=auto"})
    all.overrides.emplace_back(setting);
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    std::error_code ignored;
    if (std::filesystem::equivalent(arguments.output, arguments.run.config, ignored))
      throw UsageError("--output: " + arguments.output +
                       " is the configuration; name another file");
    io::require_cost_profile_writable(arguments.output);
  });
  Standing standing;
  io::RunConfig config = read_config(mpi, all, io::Purpose::run);
  const Machine machine = find_machine(mpi, config.engine);
  const Inputs inputs = read_inputs(mpi, std::move(config), standing);
  const Plan plan = make_plan(mpi, inputs, machine);
  const policy::Placement& placement = plan.layout.placement;
  together(mpi, [&] {
    if (placement.degrees().size() > 1)
      throw UsageError(fmt::format(
          "layout.verifier_tp: {} are several degrees, but a profile holds the costs of one; "
          "measure one of them (--set layout.verifier_tp={})",
          fmt::join(*inputs.config.layout.verifier_tp, ", "), placement.degrees().back()));
  });
  if (mpi.rank() == 0) {
    write_to_user(banner_text(inputs, machine, mpi.size()) + "layout\n" +
                  plan_text(inputs, machine, plan) +
                  circumstances_text(inputs, machine, time_limit(inputs.config.limits.wall_clock)));
  }
  const std::unique_ptr<Compute> compute = make_compute(mpi, inputs, machine, plan);
  const Address::Port port = Address::Port::role;
  fabric::UcxFabric network(mpi, {&port, 1});
  network.connect();
  CostMeasurement measured;
  {
    std::optional<roles::KvShare> share;
    if (compute->executor) {
      const policy::GroupRanks group = placement.groups[placement.group(mpi.rank())];
      share.emplace(network.blocks(), compute->executor->kv_memory(), mpi.rank() - group.leader,
                    group.tp, roles::Recorder{}, nullptr,
                    inputs.owners(group.tp) > 1 ? OptionalIndex(group.leader) : OptionalIndex());
    }
    MeasurementBudget budget;
    budget.seconds = arguments.seconds;
    measured = measure(
        {mpi, inputs, plan, *compute, share ? &*share : nullptr, network.mailbox(port), clock},
        budget);
  }
  network.close();
  together(mpi, [&] {
    if (mpi.rank() != 0) return;
    io::write_cost_profile(arguments.output, measured.table);
    say("{}: {} in {:.1f} s; set engine.profile to this file", arguments.output,
        counted(measured.measurements, "measurement"), measured.seconds);
    // The draft ladder, a table of speedups, is computed from the costs as rounded in the file,
    // because a run reads these.
    const CostTable written = io::parse_cost_profile(io::cost_profile_text(measured.table), "");
    write_to_user(draft_ladder_text(written, ladder_load(inputs, plan.layout.groups())));
  });
  return ExitCode::done;
}

}  // namespace paceline::app
