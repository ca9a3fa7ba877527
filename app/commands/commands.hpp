// The commands of the command line. Each command is one function, in the file of the command's name
// (`report` in run_report/). A command returns the exit code, or throws. main.cpp handles errors.
#pragma once

#include <string>
#include <vector>

#include "app/simulation/planned_machine.hpp"
#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// Command-line arguments that name a configuration, change it, and say where its run is.
struct RunArguments {
  std::string config;                  ///< path of the YAML file
  std::vector<std::string> overrides;  ///< "section.key=value"
  std::string output;                  ///< --output; empty: the configuration's output directory
  bool resume = false;                 ///< continue the run in the output directory
};

struct RolloutArguments {
  RunArguments run;
  std::string watch;  ///< folder of requests (watch.hpp); empty: one rollout
};
/// Runs one rollout on all ranks; with `watch`, runs one rollout for each request. Collective.
ExitCode rollout(const fabric::MpiEnvironment& mpi, const RolloutArguments& arguments);
struct CheckArguments {
  RunArguments run;
  PlannedMachine machine;  ///< machine options of the command line, such as --nodes
};
/// Validates a run's configuration and inputs, and prints its layout, memory, plan and time.
/// Generates nothing. Collective.
ExitCode check(const fabric::MpiEnvironment& mpi, const CheckArguments& arguments);
struct ProfileArguments {
  RunArguments run;
  std::string output;   ///< file to write
  double seconds = 30;  ///< longest time to measure, in seconds
};
/// Measures the costs of steps and drafts on the job's ranks, and writes them to a file for
/// engine.profile. Collective.
ExitCode profile(const fabric::MpiEnvironment& mpi, const ProfileArguments& arguments);
struct ScoreArguments {
  RunArguments run;              ///< the configuration names the weights; `output` is ignored
  std::string directory;         ///< directory of a finished run
  std::string name;              ///< NAME in scores-NAME.h5; empty: name of the model's directory
  bool keeps_routing = false;    ///< also write which experts each token uses
  bool replays_routing = false;  ///< compute each token with the experts that the run recorded
};
/// Computes the log-probabilities of a finished run's responses under the weights of the
/// configuration, and writes them to a file in the run's directory. Collective.
ExitCode score(const fabric::MpiEnvironment& mpi, const ScoreArguments& arguments);
struct SimulateArguments {
  RunArguments run;
  std::string sweep;  ///< "section.key=value,value": simulate each value; empty: no sweep
};
/// Simulates a run: runs the roles and policies of all its ranks in one process, in virtual time.
/// Prints the results. Writes telemetry if an output directory is configured, or for a sweep only
/// if `run.output` names one. Needs no MPI.
ExitCode simulate(const SimulateArguments& arguments);
struct ReportArguments {
  std::vector<std::string> runs;  ///< run directories, their telemetry.h5, or --watch folders
  std::string html;               ///< HTML file to write; empty: none
  std::string trace;  ///< trace file to write, allowed only if there is one run; empty: none
  bool json = false;  ///< print JSON
  double pass = 0.5;  ///< least reward with which a response passes (pass@k)
};
/// Prints the rewards of finished or unfinished runs, and how their time, tokens and drafts were
/// used. Needs no MPI.
ExitCode report(const ReportArguments& arguments);
struct ShowArguments {
  std::string run;                 ///< run directory, or its trajectories.h5
  std::vector<std::string> which;  ///< PROMPT:SAMPLE or PROMPT, counted from 0; empty: an overview
};
/// Prints responses of a finished or unfinished run as text. Needs no MPI.
ExitCode show(const ShowArguments& arguments);
/// Prints the digest of a run directory or trajectory file. Needs no MPI.
ExitCode digest(const std::string& path);

}  // namespace paceline::app
