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
/// once a second, and a thread of each other rank answers by taking it. A rank that has heard
/// nothing of rank 0 for limits.stall ends the job (70), naming it, and so does rank 0 with one
/// that has not answered. A phase may be as long as it likes: it is the process that must be alive,
/// or the loop of a PulsingLoop. Time in which nobody looked does not count: the job may have been
/// suspended as a whole.
///
/// One per process. Where there is one rank it does nothing.
class Pulse {
 public:
  /// Collective. `advice`: what the user is to do when a rank has stopped; may be empty.
  Pulse(const fabric::MpiEnvironment& mpi, std::string advice);
  /// Waits until rank 0's last pulse has come. Collective.
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  struct Peer {
    MPI_Request request = MPI_REQUEST_NULL;  ///< its last pulse, until it is taken
    double silent = 0;                       ///< seconds that it has not been
  };
  void run();
  void beat(std::uint8_t pulse);
  [[nodiscard]] bool all_taken();
  [[nodiscard]] bool listen();
  [[nodiscard]] bool ending();
  [[nodiscard]] bool loop_stands();
  void judge(int rank, double silent, double grace);
  /// Until the next look is due, or `ending_`.
  void sleep();

  const fabric::MpiEnvironment& mpi_;
  std::string advice_;
  Communicator comm_;
  std::vector<Peer> peers_;  ///< rank 0: [ranks], its own unused
  MPI_Request heard_ = MPI_REQUEST_NULL;
  std::uint8_t pulse_ = 0;  ///< the one that is sent or taken
  double silent_ = 0;       ///< seconds that rank 0 has not been heard
  double looked_ = 0;
  double passed_ = 0;  ///< since the last look, as far as it counts
  std::uint64_t turns_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

/// For how long a rank may be silent; nothing: for ever. limits.stall, from when it is known.
void set_patience(std::optional<double> seconds);

/// While one lives, rank 0's pulse is that of a loop: it pauses while the loop makes no turn, as
/// when a file system hangs. Not for loops that wait for other ranks.
class PulsingLoop {
 public:
  PulsingLoop();
  ~PulsingLoop();
  PulsingLoop(const PulsingLoop&) = delete;
  PulsingLoop& operator=(const PulsingLoop&) = delete;
  /// `watches_others`: the loop itself notices when another rank has stopped, and knows better
  /// whether that matters.
  void turn(bool watches_others);
};

}  // namespace paceline::app
