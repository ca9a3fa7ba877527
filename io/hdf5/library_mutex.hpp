// The lock around the HDF5 library, which is not thread-safe. Private to io.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace paceline::io::h5 {

/// A recursive mutex that serves threads in the order of their arrival. So a thread that reads for
/// long can let others in between: a rank's steps wait for one piece of another thread's reading,
/// not for all of it.
class LibraryMutex {
 public:
  void lock();
  void unlock();
  /// Lets the threads that wait now lock and unlock before this one continues. Does nothing if no
  /// thread waits, or on a thread that does not hold the lock.
  void give_way();
  /// Whether threads wait.
  [[nodiscard]] bool wanted();

 private:
  [[nodiscard]] bool owned() const { return owner_ == std::this_thread::get_id(); }

  std::mutex mutex_;  ///< guards the two counters
  std::condition_variable next_;
  std::uint64_t arrivals_ = 0;            ///< number of threads that came to lock
  std::uint64_t leaves_ = 0;              ///< number of threads that have unlocked
  std::atomic<std::thread::id> owner_{};  ///< only the owner can read its own id here
  int depth_ = 0;                         ///< depth of the owner's locking
};

}  // namespace paceline::io::h5
