// Rank 0 and each other rank exchange pulses, so that each side knows that the other is alive. If a
// rank is silent for limits.stall, the job ends, even while other ranks wait in a collective.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/assembly/communicator.hpp"
#include "runtime/fabric/mpi_environment.hpp"

namespace paceline::app {

/// From construction to destruction a thread of rank 0 sends a pulse to every other rank about once
/// a second, or more often if limits.stall is short. The send is synchronous: it completes when a
/// thread of the other rank receives the pulse. Rank 0 takes this completion as the answer. If a
/// rank has not answered for limits.stall seconds, rank 0 ends the job with exit code 70 and a
/// message that names the rank. If rank 1 has not heard from rank 0 for this time, rank 1 ends the
/// job, and the message names rank 0. Ranks above 1 wait 10 seconds longer. Work of a rank may take
/// any time, except in a PulsingLoop (below), because pulses have a thread of their own. Time in
/// which the pulse thread of this process did not run does not count as silence of other ranks,
/// because the whole job may have been suspended then.
///
/// A process has one Pulse. In a job of one rank the Pulse does nothing.
class Pulse {
 public:
  /// Collective. `advice`: end of the message about a silent rank; may be empty.
  Pulse(const fabric::MpiEnvironment& mpi, std::string advice);
  /// Collective. Rank 0 sends a final pulse, and waits until all other ranks have received it.
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  struct Peer {
    MPI_Request request = MPI_REQUEST_NULL;  ///< send of the last pulse; null: received
    double silent = 0;                       ///< seconds of silence counted since this send
  };
  void run();
  void beat(std::uint8_t pulse);
  [[nodiscard]] bool all_taken();
  [[nodiscard]] bool listen();
  [[nodiscard]] bool ending();
  [[nodiscard]] bool loop_stood_still();
  void judge(int rank, double silent, double grace);
  /// Sleeps until the next look for pulses is due, or until ending_ is set.
  void sleep();

  const fabric::MpiEnvironment& mpi_;
  std::string advice_;
  Communicator comm_;
  std::vector<Peer> peers_;  ///< on rank 0: [ranks], entry 0 unused
  MPI_Request heard_ = MPI_REQUEST_NULL;
  std::uint8_t pulse_ = 0;  ///< pulse being sent or received
  double silent_ = 0;       ///< seconds of silence counted since rank 0 was last heard
  double looked_ = 0;       ///< time of the thread's last look for pulses
  double passed_ = 0;       ///< seconds of silence that the present look adds
  std::uint64_t turns_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

/// Sets the seconds of silence after which a rank counts as stopped (limits.stall). With nullopt,
/// which is the default, no rank ever counts as stopped.
void set_patience(std::optional<double> seconds);

/// Ties rank 0's pulses to a loop on rank 0 while this object lives: no pulses are sent while the
/// loop makes no turn, for example because a file system hangs. No turn may wait for another rank.
class PulsingLoop {
 public:
  PulsingLoop();
  ~PulsingLoop();
  PulsingLoop(const PulsingLoop&) = delete;
  PulsingLoop& operator=(const PulsingLoop&) = delete;
  /// Counts a turn of the loop. `watches_others`: the loop itself looks for stopped ranks, so rank
  /// 0's Pulse does not. Unlike the Pulse, the loop may know that the run needs no stopped rank.
  void turn(bool watches_others);
};

}  // namespace paceline::app
