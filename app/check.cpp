#include "app/commands.hpp"
#include "app/report.hpp"
#include "app/setup.hpp"
#include "app/terminal.hpp"

namespace paceline::app {

ExitCode check(const fabric::MpiEnvironment& mpi, const RunArguments& arguments) {
  const Setup setup = prepare(mpi, arguments, mpi.size() == 1 ? arguments.ranks : 0);
  if (mpi.rank() == 0) {
    print_banner(setup, static_cast<int>(setup.facts.size()));
    print_plan(setup, time_limit(setup.config.limits.wall_clock));
    write_to_user(speculation_text(setup));
    say("everything is in order: {} responses to generate", setup.requests());
  }
  return ExitCode::done;
}

}  // namespace paceline::app
