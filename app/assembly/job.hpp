// The ways in which the ranks of a job fail: together where they can, at once where they cannot.
// Either way the message comes first and is printed once.
#pragma once

#include <mpi.h>

#include <functional>
#include <string>

#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// A fault on a rank, as the user is told of it.
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

/// Runs `step` on every rank and compares the outcomes. If it threw on any rank, one rank prints
/// the message of the gravest fault and every rank throws JobEnded with its code. Collective; for
/// start-up and the end of a run. If the step makes a collective call, nothing before that call may
/// throw on some ranks alone.
void together(const fabric::MpiEnvironment& mpi, const std::function<void()>& step);

/// Ends the job from one rank, wherever the others are: prints the message and aborts. The first
/// thread to call does so; other callers wait for the end.
[[noreturn]] void abort_job(const fabric::MpiEnvironment& mpi, const Fault& fault);

/// Ends the job where even printing may hang, for example on a hanging file system. If the message
/// is not out after some seconds, the job ends without it.
[[noreturn]] void abort_hung_job(const fabric::MpiEnvironment& mpi, const Fault& fault);

/// The place where a rank reports a fault while ranks work on their own. Rank 0 speaks for all, for
/// the same fault may strike many ranks at once.
class FaultDesk {
 public:
  /// Faults travel by MPI, because the fabric itself may be at fault. `comm`: for faults alone;
  /// must outlive the desk.
  FaultDesk(const fabric::MpiEnvironment& mpi, MPI_Comm comm) : mpi_(mpi), comm_(comm) {}
  /// Prints the fault or has rank 0 print it, calls `save` to write finished work that is not on
  /// disk yet, and ends the job. Call before unwinding anything that waits for other ranks.
  [[noreturn]] void report(const Fault& fault, const std::function<void()>& save);
  /// Ends the job when another rank has reported a fault. Rank 0's second thread calls this often.
  void watch();

 private:
  const fabric::MpiEnvironment& mpi_;
  MPI_Comm comm_;
};

/// Sets the function that the rank speaking for a fault calls after printing it; `tell` must not
/// throw. Call while no other thread may report a fault.
void set_last_words(std::function<void(const Fault&)> tell);

/// Makes an uncaught exception, on any thread, end the job like a fault from here on.
void end_job_on_terminate();

}  // namespace paceline::app
