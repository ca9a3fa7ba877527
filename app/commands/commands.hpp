// The commands of the command line: one function each, in a file of its own name (`report` in
// run_report/). They return the exit code and throw Error, which main handles.
#pragma once

#include <string>
#include <vector>

#include "app/simulation/planned_machine.hpp"
#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// Arguments that name a run on the command line.
struct RunArguments {
  std::string config;                  ///< YAML file
  std::vector<std::string> overrides;  ///< "section.key=value"
  std::string output;                  ///< --output; empty: the configuration's directory
  bool resume = false;
};

struct RolloutArguments {
  RunArguments run;
  std::string watch;  ///< a folder of requests; empty: one rollout
};
/// Runs one rollout on all ranks of the job, or one for each request of a folder. Collective.
ExitCode rollout(const fabric::MpiEnvironment& mpi, const RolloutArguments& arguments);
struct CheckArguments {
  RunArguments run;
  PlannedMachine machine;  ///< stated on the command line; default: the job's own machine
};
/// Validates everything, prints layout, memory and plan on stdout and runs nothing. Collective.
ExitCode check(const fabric::MpiEnvironment& mpi, const CheckArguments& arguments);
struct ProfileArguments {
  RunArguments run;
  std::string output;   ///< file to write
  double seconds = 30;  ///< longest time for measuring
};
/// Measures the costs of steps and drafts with the run's layout, and writes them to a file for
/// engine.profile. Collective.
ExitCode profile(const fabric::MpiEnvironment& mpi, const ProfileArguments& arguments);
struct ScoreArguments {
  RunArguments run;              ///< names the weights; its output directory is ignored
  std::string directory;         ///< directory of a finished run
  std::string name;              ///< name of the scores; empty: name of the model's directory
  bool keeps_routing = false;    ///< write also which experts each token uses
  bool replays_routing = false;  ///< tokens use the experts that the run recorded
};
/// Computes the log-probabilities of a finished run's responses under the weights of the
/// configuration, and writes them to a file in the run's directory. Collective.
ExitCode score(const fabric::MpiEnvironment& mpi, const ScoreArguments& arguments);
struct SimulateArguments {
  RunArguments run;
  std::string sweep;  ///< "section.key=value,value": a row for each; empty: one simulation
};
/// Runs the roles and policies of a run in a modelled world, prints the results and writes
/// telemetry. Uses one process, without MPI.
ExitCode simulate(const SimulateArguments& arguments);
struct ReportArguments {
  std::vector<std::string> runs;  ///< directories, their telemetry.h5, or folders of --watch
  std::string html;               ///< file to write; empty: none
  std::string trace;              ///< trace file to write, of one run only; empty: none
  bool json = false;              ///< print JSON
  double pass = 0.5;              ///< the least reward that counts as passed
};
/// Prints the rewards of finished or unfinished runs, and how their time, tokens and drafts were
/// used. Needs no MPI.
ExitCode report(const ReportArguments& arguments);
struct ShowArguments {
  std::string run;                 ///< directory, or its trajectories.h5
  std::vector<std::string> which;  ///< PROMPT:SAMPLE or PROMPT, from 0; empty: an overview
};
/// Prints responses of a finished or unfinished run as text. Needs no MPI.
ExitCode show(const ShowArguments& arguments);
/// Prints the digest of a run directory or trajectory file.
ExitCode digest(const std::string& path);

}  // namespace paceline::app
