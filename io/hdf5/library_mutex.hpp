// The lock over the HDF5 library, which is not thread-safe. Private to io.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace paceline::io::h5 {

/// A recursive mutex that serves threads in the order in which they come, so that a thread that
/// reads for long can let the others in between: a rank's steps wait for one piece of what the
/// thread beside them reads, not for all of it.
class LibraryMutex {
 public:
  void lock();
  void unlock();
  /// Where other threads wait, lets those that wait now lock and unlock before this one goes on;
  /// nothing on a thread that has not locked.
  void give_way();
  /// Whether threads wait.
  [[nodiscard]] bool wanted();

 private:
  [[nodiscard]] bool owned() const { return owner_ == std::this_thread::get_id(); }

  std::mutex mutex_;  ///< over the two counters
  std::condition_variable next_;
  std::uint64_t arrivals_ = 0;            ///< threads that came to lock
  std::uint64_t leaves_ = 0;              ///< those that have unlocked
  std::atomic<std::thread::id> owner_{};  ///< its own id is seen by the owner alone
  int depth_ = 0;                         ///< the owner's
};

}  // namespace paceline::io::h5
