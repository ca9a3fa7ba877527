// How the ranks of a job fail: together where they can, at once where they cannot. Either way the
// message comes first and is printed once.
#pragma once

#include <mpi.h>

#include <functional>
#include <string>

#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// What went wrong on a rank, as its user is told.
struct Fault {
  ExitCode code = ExitCode::internal;
  std::string message;
};

/// The exception that is being handled, as a fault.
[[nodiscard]] Fault current_fault();

/// All ranks end with this code; the message has been printed.
struct JobEnded {
  ExitCode code;
  std::string message;
};

/// Runs `step` on every rank and compares notes: when it threw anywhere, one rank prints the
/// message of the gravest fault and every rank throws JobEnded with its code. Collective; for
/// start-up and the end of a run. Where the step itself is collective, nothing on the way to that
/// may throw on some ranks alone.
void together(const fabric::MpiEnvironment& mpi, const std::function<void()>& step);

/// Ends the job from one rank while others may be anywhere: prints the message and aborts. Of
/// several threads the first does so, the others wait for the end.
[[noreturn]] void abort_job(const fabric::MpiEnvironment& mpi, const Fault& fault);

/// The same where even saying so may hang, as with a file system that does: after some seconds the
/// job ends without.
[[noreturn]] void abort_hung_job(const fabric::MpiEnvironment& mpi, const Fault& fault);

/// Where a rank reports a fault while each works on its own. Rank 0 speaks for all, for the same
/// fault may strike many ranks at once.
class FaultDesk {
 public:
  /// Faults go by MPI, on a communicator of their own that must outlive the desk: they may be the
  /// fabric's.
  FaultDesk(const fabric::MpiEnvironment& mpi, MPI_Comm comm) : mpi_(mpi), comm_(comm) {}
  /// Prints the fault or has rank 0 print it, then calls `save`, for what is finished and not on
  /// disk yet, and ends the job. Called where nothing that waits for others is to be unwound yet.
  [[noreturn]] void report(const Fault& fault, const std::function<void()>& save);
  /// Rank 0's second thread, often: ends the job when another rank has reported a fault.
  void watch();

 private:
  const fabric::MpiEnvironment& mpi_;
  MPI_Comm comm_;
};

/// What the rank that speaks for a job's fault does last, besides printing it; must not throw. To
/// be set while no other thread may report one.
void set_last_words(std::function<void(const Fault&)> tell);

/// From here on an exception that nothing catches, on any thread, ends the job like a fault.
void end_job_on_terminate();

}  // namespace paceline::app
