// How a job ends after a fault. At a run's start and end, all ranks learn of the fault and throw
// (together()). In between, rank 0 prints a rank's fault and aborts all ranks (FaultDesk). A thread
// that cannot use the desk prints its fault and aborts all ranks by itself (abort_job()).
#pragma once

#include <mpi.h>

#include <functional>
#include <string>

#include "runtime/core/error.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// A fault on a rank: the exit code, and the message for the user.
struct Fault {
  ExitCode code = ExitCode::internal;
  std::string message;
};

/// Describes the exception that is being handled.
[[nodiscard]] Fault current_fault();

/// Thrown by together() when a rank has printed the message. Ends the job or a resident job's step.
struct JobEnded {
  ExitCode code;
  std::string message;
};

/// Runs `step` on every rank. If `step` throws on some ranks, the lowest rank with the highest exit
/// code prints its message. Every rank then throws JobEnded with this code and message.
/// Collective; for the start and the end of a run. If `step` makes a collective call, nothing
/// before the call may throw on some ranks only, because the other ranks would wait forever.
void together(const fabric::MpiEnvironment& mpi, const std::function<void()>& step);

/// Prints the fault and aborts all ranks, whatever they are doing. If another thread of this
/// process is ending the job already, this function only waits for the process to end.
[[noreturn]] void abort_job(const fabric::MpiEnvironment& mpi, const Fault& fault);

/// Like abort_job(), for faults after which printing may hang too, for example on a file system. If
/// the message is not printed within a few seconds, the job ends without it.
[[noreturn]] void abort_hung_job(const fabric::MpiEnvironment& mpi, const Fault& fault);

/// The place where a rank reports a fault while ranks work independently. Rank 0 prints the first
/// report and ends the job, so that a fault which strikes many ranks at once is printed once.
class FaultDesk {
 public:
  /// Reports travel by MPI, because the fabric itself may be at fault. `comm`: a communicator for
  /// the desk alone, which must outlive the desk.
  FaultDesk(const fabric::MpiEnvironment& mpi, MPI_Comm comm) : mpi_(mpi), comm_(comm) {}
  /// Reports the fault to rank 0, and calls `save` to write finished work that is not on disk yet.
  /// Rank 0 ends the job when the faulty ranks that it knows of have saved their work, or after a
  /// few seconds. If rank 0 does not, this rank ends the job. No destructor that waits for other
  /// ranks may run before this call.
  [[noreturn]] void report(const Fault& fault, const std::function<void()>& save);
  /// Ends the job if another rank has reported a fault. Call it often, and on rank 0 only.
  void watch();

 private:
  const fabric::MpiEnvironment& mpi_;
  MPI_Comm comm_;
};

/// Sets `tell`, which abort_job() and FaultDesk call after printing a fault, before they abort the
/// job. `tell` must not throw. Call this function only while no other thread can report a fault.
void set_last_words(std::function<void(const Fault&)> tell);

/// From this call on, an uncaught exception on any thread is printed and ends the job.
void end_job_on_terminate();

}  // namespace paceline::app
