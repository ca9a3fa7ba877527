// How the ranks of a job fail: together where they can, at once where they cannot.
#pragma once

#include <functional>
#include <string>

#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// All ranks end with this code. `message` is empty on all but the one that prints it.
struct JobEnded {
  ExitCode code;
  std::string message;
};

/// Runs `step` on every rank and compares notes: when it threw anywhere, every rank throws JobEnded
/// with the gravest code, and one rank carries the message. Collective; for start-up and the end of
/// a run.
void together(const fabric::MpiEnvironment& mpi, const std::function<void()>& step);

/// Ends the job from one rank while others may be anywhere: prints the message once and aborts.
[[noreturn]] void abort_job(const fabric::MpiEnvironment& mpi, ExitCode code,
                            const std::string& message);

}  // namespace paceline::app
