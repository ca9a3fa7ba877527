// Ranks that have stopped for good are noticed wherever the others wait for them, in a collective
// too: rank 0 and each other rank let one another know that they are alive.
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

/// From construction to destruction a thread of rank 0 sends a pulse to every other rank, about
/// once a second, and a thread of each other rank answers by receiving it. A rank that has heard
/// nothing of rank 0 for limits.stall ends the job (70), naming rank 0; rank 0 does so with a rank
/// that has not answered. A phase may take any time: only the process must be alive, or the loop of
/// a PulsingLoop. Time in which nobody looked does not count, for the job may have been suspended
/// as a whole.
///
/// One per process. With a single rank it does nothing.
class Pulse {
 public:
  /// Collective. `advice`: told to the user when a rank has stopped; may be empty.
  Pulse(const fabric::MpiEnvironment& mpi, std::string advice);
  /// Waits until rank 0's last pulse has come. Collective.
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  struct Peer {
    MPI_Request request = MPI_REQUEST_NULL;  ///< last pulse to it, until received
    double silent = 0;                       ///< seconds that the pulse has waited
  };
  void run();
  void beat(std::uint8_t pulse);
  [[nodiscard]] bool all_taken();
  [[nodiscard]] bool listen();
  [[nodiscard]] bool ending();
  [[nodiscard]] bool loop_stands();
  void judge(int rank, double silent, double grace);
  /// Sleeps until the next look is due, or `ending_`.
  void sleep();

  const fabric::MpiEnvironment& mpi_;
  std::string advice_;
  Communicator comm_;
  std::vector<Peer> peers_;  ///< on rank 0: [ranks], entry 0 unused
  MPI_Request heard_ = MPI_REQUEST_NULL;
  std::uint8_t pulse_ = 0;  ///< pulse being sent or received
  double silent_ = 0;       ///< seconds since rank 0 was heard
  double looked_ = 0;
  double passed_ = 0;  ///< seconds since the last look that count as silence
  std::uint64_t turns_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

/// Sets how many seconds a rank may be silent (limits.stall); nothing: for ever, as before the
/// call.
void set_patience(std::optional<double> seconds);

/// Ties rank 0's pulse to a loop while this object lives: the pulse pauses while the loop makes no
/// turn, as when a file system hangs. Not for loops that wait for other ranks.
class PulsingLoop {
 public:
  PulsingLoop();
  ~PulsingLoop();
  PulsingLoop(const PulsingLoop&) = delete;
  PulsingLoop& operator=(const PulsingLoop&) = delete;
  /// Counts a turn of the loop. `watches_others`: the loop itself notices when another rank has
  /// stopped, and knows better whether a stopped rank matters.
  void turn(bool watches_others);
};

}  // namespace paceline::app
