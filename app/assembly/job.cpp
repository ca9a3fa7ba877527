#include "app/assembly/job.hpp"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "app/terminal/terminal.hpp"
#include "runtime/core/wire.hpp"

namespace paceline::app {
namespace {

constexpr int kFaultTag = 1;
constexpr int kSavedTag = 2;

/// Longest wait of rank 0 for saves, and of another rank for rank 0 to end the job. If the file
/// system hangs, saves hang too, and the job ends without them.
constexpr std::chrono::seconds kSavePatience(5);

/// Calls `done` until it returns true, or until kSavePatience has passed.
void await(const std::function<bool()>& done) {
  constexpr std::chrono::milliseconds kPause(10);
  for (auto left = kSavePatience / kPause; left > 0 && !done(); --left)
    std::this_thread::sleep_for(kPause);
}

/// Receives a message with this tag, if one has come. Returns its sender; -1: none has come.
int receive(MPI_Comm comm, int tag, std::vector<std::byte>& message) {
  int there = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, tag, comm, &there, &status);
  if (there == 0) return -1;
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  message.resize(size);
  MPI_Recv(message.data(), size, MPI_BYTE, status.MPI_SOURCE, tag, comm, MPI_STATUS_IGNORE);
  return status.MPI_SOURCE;
}

std::atomic<bool> g_ending{false};  // whether a thread of this process is ending the job

// Returns only on the first thread that calls it, which then ends the job. Other threads wait here.
void claim_the_end() {
  if (!g_ending.exchange(true)) return;
  while (true) ::pause();
}

std::function<void(const Fault&)> g_last_words;  // called after a fault is printed; may be empty

void say_fault(int rank, const Fault& fault) {
  say("paceline: rank {}: {}", rank, fault.message);
  if (g_last_words) g_last_words(fault);
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
  } catch (const std::system_error& error) {
    // fmt::print throws this error if it cannot write to standard output.
    return std::ferror(stdout) != 0
               ? Fault{ExitCode::io, "cannot write to standard output"}
               : Fault{ExitCode::internal, std::string("internal fault: ") + error.what()};
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
  const auto messages = mpi.all_gather(std::as_bytes(std::span(fault.message)));
  const std::vector<std::byte>& message = messages[worst.rank];
  throw JobEnded{static_cast<ExitCode>(worst.value),
                 {reinterpret_cast<const char*>(message.data()), message.size()}};
}

void abort_job(const fabric::MpiEnvironment& mpi, const Fault& fault) {
  claim_the_end();
  say_fault(mpi.rank(), fault);
  abort_ranks(fault.code);
}

void abort_hung_job(const fabric::MpiEnvironment& mpi, const Fault& fault) {
  constexpr std::chrono::seconds kToSaySo(5);
  std::thread([&mpi, fault] { abort_job(mpi, fault); }).detach();
  std::this_thread::sleep_for(kToSaySo);
  abort_ranks(fault.code);
}

void FaultDesk::report(const Fault& fault, const std::function<void()>& save) {
  if (mpi_.rank() == 0) {
    claim_the_end();
    say_fault(0, fault);
    std::atomic<bool> saved = false;
    std::thread([&] {
      save();
      saved = true;
    }).detach();
    await([&] { return saved.load(); });
    abort_ranks(fault.code);
  }
  WireWriter writer;
  writer.put_all(fault.code, fault.message);
  const std::vector<std::byte> bytes = writer.take();
  std::array<MPI_Request, 2> sends = {};
  MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, kFaultTag, comm_, &sends[0]);
  save();
  MPI_Isend(nullptr, 0, MPI_BYTE, 0, kSavedTag, comm_, &sends[1]);
  // Rank 0 should end the job during this wait. If it does not, this rank ends the job.
  await([&] {
    int sent = 0;
    MPI_Testall(2, sends.data(), &sent, MPI_STATUSES_IGNORE);  // lets MPI send the messages
    return false;
  });
  abort_job(mpi_, fault);
}

void FaultDesk::watch() {
  std::vector<std::byte> bytes;
  const int rank = receive(comm_, kFaultTag, bytes);
  if (rank < 0) return;
  claim_the_end();
  Fault fault;
  WireReader reader(bytes);
  reader.get_all(fault.code, fault.message);
  say_fault(rank, fault);
  int saving = 1;  // faulty ranks that have not saved their work yet
  await([&] {
    while (receive(comm_, kFaultTag, bytes) >= 0) ++saving;
    while (receive(comm_, kSavedTag, bytes) >= 0) --saving;
    return saving == 0;
  });
  abort_ranks(fault.code);
}

void set_last_words(std::function<void(const Fault&)> tell) { g_last_words = std::move(tell); }

void end_job_on_terminate() { std::set_terminate(on_terminate); }

}  // namespace paceline::app
