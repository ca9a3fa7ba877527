#include "app/terminal/pulse.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <utility>

#include "app/assembly/job.hpp"
#include "app/assembly/wall_clock.hpp"
#include "runtime/core/counted.hpp"

namespace paceline::app {
namespace {

constexpr int kTag = 1;
constexpr std::uint8_t kAlive = 0;
constexpr std::uint8_t kLast = 1;
constexpr double kLongestPause = 1;  // seconds between two pulses
/// The pause between pulses is at most limits.stall divided by this number. A pulse and its answer
/// take about two pauses, which is well below limits.stall.
constexpr double kPulses = 8;
/// If rank 0 is silent, rank 1 ends the job. Ranks above 1 wait this many seconds longer than rank
/// 1 before they end the job, in case rank 1 has stopped as well.
constexpr double kOthersLater = 10;
constexpr double kForEver = std::numeric_limits<double>::infinity();

std::atomic<double> g_patience{kForEver};
// State of rank 0's PulsingLoop objects.
std::atomic<int> g_loops{0};
std::atomic<std::uint64_t> g_turns{0};
std::atomic<bool> g_watches_others{false};

double pause_between() { return std::min(kLongestPause, g_patience.load() / kPulses); }

}  // namespace

void set_patience(std::optional<double> seconds) { g_patience = seconds.value_or(kForEver); }

PulsingLoop::PulsingLoop() { ++g_loops; }
PulsingLoop::~PulsingLoop() {
  g_watches_others = false;
  --g_loops;
}
void PulsingLoop::turn(bool watches_others) {
  g_watches_others = watches_others;
  ++g_turns;
}

Pulse::Pulse(const fabric::MpiEnvironment& mpi, std::string advice)
    : mpi_(mpi), advice_(std::move(advice)), comm_(Communicator::duplicate()) {
  if (mpi.size() == 1) return;
  if (mpi.rank() == 0) {
    peers_.resize(mpi.size());
  } else {
    MPI_Irecv(&pulse_, 1, MPI_BYTE, 0, kTag, comm_.get(), &heard_);
  }
  thread_ = std::thread([this] { run(); });
}

Pulse::~Pulse() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Pulse::sleep() {
  // At the end of the job, every rank waits for rank 0's final pulse. So pause only briefly.
  constexpr std::chrono::milliseconds kAtEnd(1);
  std::unique_lock lock(mutex_);
  if (ending_) {
    lock.unlock();
    std::this_thread::sleep_for(kAtEnd);
  } else {
    wake_.wait_for(lock, std::chrono::duration<double>(pause_between()),
                   [this] { return ending_; });
  }
}

void Pulse::run() {
  const SteadyClock clock;
  bool said_last = false;
  while (true) {
    sleep();
    const double now = clock.now();
    passed_ = std::min(now - std::exchange(looked_, now), kLongestPause);
    if (mpi_.rank() != 0) {
      if (listen()) return;
      continue;
    }
    const bool taken = all_taken();
    if (said_last) {
      if (taken) return;
    } else if (ending()) {
      said_last = taken;
      if (taken) beat(kLast);
    } else if (!loop_stood_still()) {
      beat(kAlive);
    }
  }
}

bool Pulse::ending() {
  const std::lock_guard lock(mutex_);
  return ending_;
}

/// Whether rank 0 is in a PulsingLoop that has made no turn since the last call of this function.
bool Pulse::loop_stood_still() {
  const std::uint64_t turns = g_turns;
  return std::exchange(turns_, turns) == turns && g_loops > 0;
}

/// Sends a pulse to each rank that has received its previous pulse. So at most one pulse to a rank
/// is in flight, even if the rank has stopped.
void Pulse::beat(std::uint8_t pulse) {
  pulse_ = pulse;
  for (int rank = 1; rank < static_cast<int>(peers_.size()); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.request != MPI_REQUEST_NULL) continue;
    peer.silent = 0;
    MPI_Issend(&pulse_, 1, MPI_BYTE, rank, kTag, comm_.get(), &peer.request);
  }
}

/// Whether each rank has received its latest pulse. Ends the job if a rank is silent for too long.
bool Pulse::all_taken() {
  bool all = true;
  for (int rank = 1; rank < static_cast<int>(peers_.size()); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.request == MPI_REQUEST_NULL) continue;
    int taken = 0;
    MPI_Test(&peer.request, &taken, MPI_STATUS_IGNORE);
    if (taken != 0) continue;
    all = false;
    peer.silent = g_watches_others ? 0 : peer.silent + passed_;
    judge(rank, peer.silent, 0);
  }
  return all;
}

/// Receives pulses. Returns true after the final pulse. Ends the job if rank 0 is silent too long.
bool Pulse::listen() {
  silent_ += passed_;
  int heard = 0;
  while (MPI_Test(&heard_, &heard, MPI_STATUS_IGNORE), heard != 0) {
    silent_ = 0;
    if (pulse_ == kLast) return true;
    MPI_Irecv(&pulse_, 1, MPI_BYTE, 0, kTag, comm_.get(), &heard_);
  }
  judge(0, silent_, mpi_.rank() == 1 ? 0 : kOthersLater);
  return false;
}

void Pulse::judge(int rank, double silent, double grace) {
  if (silent < g_patience + grace) return;
  std::string text = "rank " + std::to_string(rank) + (rank == 0 ? ", which leads the job," : "") +
                     " has not been heard from for " + duration_text(silent) +
                     " (limits.stall): it is stopped, or waits for a file system";
  if (!advice_.empty()) text += "; " + advice_;
  abort_hung_job(mpi_, {ExitCode::internal, std::move(text)});
}

}  // namespace paceline::app
