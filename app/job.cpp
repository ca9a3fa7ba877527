#include "app/job.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>

#include "app/terminal.hpp"
#include "runtime/core/wire.hpp"

namespace paceline::app {
namespace {

std::atomic<bool> g_ending{false};  // a thread of this process is ending the job

// Returns on one thread alone; the process ends under the others.
void claim_the_end() {
  if (!g_ending.exchange(true)) return;
  while (true) ::pause();
}

void say_fault(int rank, const std::string& message) {
  say("paceline: rank {}: {}", rank, message);
}

[[noreturn]] void abort_ranks(ExitCode code) {
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

[[noreturn]] void on_terminate() {
  claim_the_end();
  const Fault fault =
      std::current_exception() ? current_fault() : Fault{ExitCode::internal, "internal fault"};
  say("paceline: {}", fault.message);
  int in_mpi = 0;
  int past_mpi = 0;
  MPI_Initialized(&in_mpi);
  MPI_Finalized(&past_mpi);
  if (in_mpi != 0 && past_mpi == 0) abort_ranks(fault.code);
  std::_Exit(static_cast<int>(fault.code));
}

}  // namespace

Fault current_fault() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::filesystem::filesystem_error& error) {
    return {ExitCode::io, error.path1().string() + ": " + error.code().message()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::internal, "internal fault: out of memory"};
  } catch (const std::exception& error) {
    return {ExitCode::internal, std::string("internal fault: ") + error.what()};
  } catch (...) {
    return {ExitCode::internal, "internal fault"};
  }
}

void together(const fabric::MpiEnvironment& mpi, const std::function<void()>& step) {
  Fault fault{ExitCode::done, ""};
  try {
    step();
  } catch (...) {
    fault = current_fault();
  }
  const auto worst = mpi.max_of(static_cast<int>(fault.code));
  if (worst.value == 0) return;
  if (worst.rank == mpi.rank()) say("paceline: {}", fault.message);
  throw JobEnded{static_cast<ExitCode>(worst.value)};
}

void abort_job(const fabric::MpiEnvironment& mpi, const Fault& fault) {
  claim_the_end();
  say_fault(mpi.rank(), fault.message);
  abort_ranks(fault.code);
}

FaultDesk::FaultDesk(const fabric::MpiEnvironment& mpi, MPI_Comm comm)
    : mpi_(mpi), mailbox_(comm, fabric::Address::Port::fault) {}

void FaultDesk::report(const Fault& fault, const std::function<void()>& save) {
  if (mpi_.rank() == 0) {
    claim_the_end();
    say_fault(0, fault.message);
    save();
    abort_ranks(fault.code);
  }
  WireWriter writer;
  writer.put(fault.code);
  writer.put(fault.message);
  mailbox_.send({0, fabric::Address::Port::fault}, writer.take());
  save();
  // Rank 0 ends the job at once, unless something keeps it from that.
  constexpr std::chrono::milliseconds kPause(10);
  for (int pauses = 0; pauses < 500; ++pauses) {
    static_cast<void>(mailbox_.poll());  // lets the message go
    std::this_thread::sleep_for(kPause);
  }
  abort_job(mpi_, fault);
}

void FaultDesk::watch() {
  const std::optional<fabric::Envelope> envelope = mailbox_.poll();
  if (!envelope) return;
  claim_the_end();
  Fault fault;
  WireReader reader(envelope->bytes);
  reader.get(fault.code);
  reader.get(fault.message);
  say_fault(envelope->from, fault.message);
  abort_ranks(fault.code);
}

void end_job_on_terminate() { std::set_terminate(on_terminate); }

}  // namespace paceline::app
