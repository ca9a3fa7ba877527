// The commands of the command line: one function each, one file each. They return the exit code and
// throw Error (handled once, in main).
#pragma once

#include <string>
#include <vector>

#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// What names a run on the command line.
struct RunArguments {
  std::string config;                  ///< YAML file
  std::vector<std::string> overrides;  ///< "section.key=value"
  std::string output;                  ///< --output; empty: from the configuration
  bool resume = false;
  int ranks = 0;  ///< check: plan for this many ranks instead of the job's
};

/// Runs the rollout on all ranks of the job. Collective.
ExitCode rollout(const fabric::MpiEnvironment& mpi, const RunArguments& arguments);
/// Validates everything and prints layout, memory and plan; runs nothing. Collective.
ExitCode check(const fabric::MpiEnvironment& mpi, const RunArguments& arguments);
struct ProfileArguments {
  RunArguments run;
  std::string output;   ///< file
  double seconds = 30;  ///< that measuring takes at most
};
/// Measures what steps and drafts cost on the run's layout and writes a file that engine.profile
/// names. Collective.
ExitCode profile(const fabric::MpiEnvironment& mpi, const ProfileArguments& arguments);
/// Prints the digest of a run directory or trajectory file.
ExitCode digest(const std::string& path);

}  // namespace paceline::app
